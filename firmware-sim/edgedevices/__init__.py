"""MQTT devices to test a gateway with: simulated fleets, this machine's telemetry, recorded CSV files.

The errors of the package are defined here: each ends the command with one line and exit code 2.
"""

from __future__ import annotations

from edgebroker.errors import EdgebrokerError


class DeviceError(EdgebrokerError):
    """Base class of errors that the command line shows as one line."""


class BrokerUnreachable(DeviceError):
    """No device could connect; the message names the address and the last reason."""


class InputInvalid(DeviceError):
    """A file, column, placeholder or address given by the user is invalid."""
