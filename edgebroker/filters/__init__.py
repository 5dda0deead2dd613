"""Content filters: the language, its three-valued meaning, its normal form, and the attributes of an event."""

from edgebroker.filters.attributes import Extractor
from edgebroker.filters.filter import Explanation, Filter, explain

__all__ = ["Explanation", "Extractor", "Filter", "explain"]
