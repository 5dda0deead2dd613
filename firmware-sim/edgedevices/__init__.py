"""MQTT devices to test a gateway with: simulated fleets, this machine's telemetry, recorded CSV files.

The errors of the package stand here: each ends the command with one line and exit code 2.
"""

from __future__ import annotations

from edgebroker.errors import EdgebrokerError


class DeviceError(EdgebrokerError):
    """Base of the errors the command line shows as one line."""


class BrokerUnreachable(DeviceError):
    """No device got a connection; the message names the address and the last reason heard."""


class InputInvalid(DeviceError):
    """A file, column, placeholder or address given by the user cannot be used."""
