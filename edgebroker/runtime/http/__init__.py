"""The HTTP interface of a gateway: metrics, health, status and orders of an operator. Loaded only with `http.port`."""
