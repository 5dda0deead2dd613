"""The matching kernel with C types and pointers. Importing it fails where nothing was compiled."""

from edgebroker.matching.compiled.buckets import Bucket
from edgebroker.matching.compiled.forks import Fork, annotate_up, count_in, gain, plant, root_of
from edgebroker.matching.compiled.leaves import Leaves
from edgebroker.matching.compiled.nodes import Node
from edgebroker.matching.compiled.search import decide, match, route
from edgebroker.matching.compiled.surveys import spread, survey
from edgebroker.matching.compiled.topictree import TopicTree

KIND = "compiled"
BUCKET_MAX = 4_096
"""Leaves of a full bucket. Cutting one anew, the longest pause there is, takes about 1 ms."""

__all__ = [
    "BUCKET_MAX",
    "KIND",
    "Bucket",
    "Fork",
    "Leaves",
    "Node",
    "TopicTree",
    "annotate_up",
    "count_in",
    "decide",
    "gain",
    "match",
    "plant",
    "root_of",
    "route",
    "spread",
    "survey",
]
