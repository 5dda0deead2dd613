"""Federation: a gateway forwards events to other gateways, and announces which events its clients want."""
