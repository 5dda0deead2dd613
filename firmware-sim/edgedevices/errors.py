"""What can stop a run before it began: one line for the user, exit code 2."""

from __future__ import annotations

from edgebroker.errors import EdgebrokerError


class DeviceError(EdgebrokerError):
    """Base of the errors the command line shows as one line."""


class BrokerUnreachable(DeviceError):
    """No device got a connection; the message names the address and the last reason heard."""


class InputInvalid(DeviceError):
    """A file, column, placeholder or address given by the user cannot be used."""
