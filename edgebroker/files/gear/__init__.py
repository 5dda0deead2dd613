"""The end of a chunk with C types. A folder of its own, so that a tree that is not compiled never finds another's."""
