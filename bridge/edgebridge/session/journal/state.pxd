# C types for state.py; the meaning is there.
from edgebridge.session.journal.text cimport read_text
