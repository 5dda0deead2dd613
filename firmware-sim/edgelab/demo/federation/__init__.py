"""The demo with several sites: real gateways, joined by uplinks that can be squeezed, and what comes of it."""
