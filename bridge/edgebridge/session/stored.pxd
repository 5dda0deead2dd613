# C types for stored.py; the meaning is there.
from edgebridge.session.recordtext cimport read_text
