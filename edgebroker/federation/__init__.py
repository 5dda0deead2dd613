"""Federation: a gateway forwards events to other gateways, and announces the interests of its clients to them."""
