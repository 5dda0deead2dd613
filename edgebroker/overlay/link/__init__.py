"""The link between two gateways, from bytes to messages that arrive once and in order. `link` says how it is used."""
