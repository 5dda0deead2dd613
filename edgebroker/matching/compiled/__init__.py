"""The matching kernel with C types and pointers. Importing it fails where nothing was compiled."""

from edgebroker.matching.compiled.buckets import Bucket
from edgebroker.matching.compiled.forks import Fork, annotate_up, count_in, gain, plant, root_of
from edgebroker.matching.compiled.leaves import Leaves
from edgebroker.matching.compiled.nodes import TreeNode
from edgebroker.matching.compiled.search import decide, match, route
from edgebroker.matching.compiled.surveys import spread, survey
from edgebroker.matching.compiled.topictree import TopicTree

KIND = "compiled"
BUCKET_MAX = 3_072
"""Leaves of a full bucket. Cutting one anew takes 2 ms; making it a fork, the longest pause there is, 4.5 ms."""
