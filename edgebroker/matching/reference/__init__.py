"""The matching kernel in plain Python: what runs where nothing was compiled, and the compiled one's oracle."""

from edgebroker.matching.reference.buckets import Bucket
from edgebroker.matching.reference.forks import Fork, annotate_up, count_in, gain, plant, root_of
from edgebroker.matching.reference.leaves import Leaves
from edgebroker.matching.reference.nodes import TreeNode
from edgebroker.matching.reference.search import decide, match, route
from edgebroker.matching.reference.surveys import spread, survey
from edgebroker.matching.reference.topictree import TopicTree

KIND = "pure"
BUCKET_MAX = 2_048
"""Leaves of a full bucket. Cutting one anew, the longest pause there is, takes about 50 ms."""
