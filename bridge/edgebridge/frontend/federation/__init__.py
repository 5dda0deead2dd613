"""The front end as a member of a federation: links to peers, forwarded events, and what must outlive a crash.

A front end that stands alone loads none of these modules.
"""
