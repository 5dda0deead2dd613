"""Numbers out of planes, with C types. A folder of its own: a tree that is not compiled never finds another's."""
