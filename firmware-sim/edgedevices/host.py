"""The machine itself as a device: its real load, temperatures, memory, disk and network."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import psutil

from edgebroker.instants import SECOND, Duration
from edgedevices.message import Body, DeviceMessage, Json, PayloadForm, level

TELEMETRY = "telemetry"


class HostTelemetry:
    """A source that measures when a message is due. Rates are means since the message before."""

    patient = False

    def __init__(
        self,
        prefix: str = "host/{hostname}",
        every_us: Duration = SECOND,
        duration_us: Duration | None = None,
        qos: int = 1,
        form: PayloadForm = PayloadForm.JSON,
        retain: bool = False,
    ) -> None:
        hostname = level(socket.gethostname()) or "localhost"
        self.name = f"host-{hostname}"
        self.topic = f"{prefix.replace('{hostname}', hostname).rstrip('/')}/{TELEMETRY}"
        self._every_us = every_us
        self._duration_us = duration_us
        self._qos = qos
        self._form = form
        self._retain = retain
        self._seq = 0
        psutil.cpu_percent()  # the first call starts the measurement and returns 0.0
        psutil.cpu_percent(percpu=True)
        self._counters = _counters()
        self._counted_at = time.monotonic()

    @property
    def due_us(self) -> Duration | None:
        """See `MessageSource`. The first message is due after one interval, which rates need."""
        due_us = (self._seq + 1) * self._every_us
        return None if self._duration_us is not None and due_us > self._duration_us else due_us

    def emit(self) -> DeviceMessage:
        """Measures and returns the message."""
        self._seq += 1
        body: Body = {"device": self.name, "seq": self._seq, **self._measure()}
        return DeviceMessage(self.name, self._seq, self.topic, body, self._form, self._qos, self._retain)

    def _measure(self) -> Body:
        memory = psutil.virtual_memory()
        counters, now = _counters(), time.monotonic()
        elapsed_s = max(now - self._counted_at, 1e-3)
        rates: Body = {
            key: round((counters[key] - self._counters[key]) / elapsed_s) for key in counters if key in self._counters
        }
        self._counters, self._counted_at = counters, now
        per_core: list[Json] = list(psutil.cpu_percent(percpu=True))
        body: Body = {
            "cpu_percent": psutil.cpu_percent(),
            "cpu_per_core": per_core,
            "memory_percent": memory.percent,
            "memory_available_mib": memory.available >> 20,
            "disk_percent": psutil.disk_usage(os.sep).percent,
            **rates,
            "uptime_s": round(time.time() - psutil.boot_time()),
            "processes": len(psutil.pids()),
        }
        if hasattr(os, "getloadavg"):
            body["load_1"], body["load_5"], body["load_15"] = (round(load, 2) for load in os.getloadavg())
        temperatures = _temperatures()
        if temperatures:
            body["temperature"] = max(temperatures.values())
            body["temperatures"] = dict(temperatures)
        return body


def _counters() -> dict[str, int]:
    """Returns total bytes, under the names of their rates. Containers may have no disk or network counters."""
    counters: dict[str, int] = {}
    network: Any = psutil.net_io_counters()
    if network is not None:
        counters |= {"net_sent_bytes_s": network.bytes_sent, "net_received_bytes_s": network.bytes_recv}
    disk: Any = psutil.disk_io_counters()
    if disk is not None:
        counters |= {"disk_read_bytes_s": disk.read_bytes, "disk_written_bytes_s": disk.write_bytes}
    return counters


def _temperatures() -> dict[str, float]:
    """Returns sensor name -> degrees Celsius; empty where the system has none (virtual machines, macOS)."""
    read = getattr(psutil, "sensors_temperatures", None)
    if read is None:
        return {}
    found: dict[str, float] = {}
    for chip, sensors in read().items():
        for number, sensor in enumerate(sensors):
            if sensor.current is not None:
                found[f"{chip}.{sensor.label or number}"] = round(float(sensor.current), 1)
    return found
