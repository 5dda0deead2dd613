"""Everything that reads bytes of strangers, of files and of disks, by name."""

from __future__ import annotations

from tests.fuzz.frame.target import Target

from . import accounts, broker, configuration, deliverylog, doors, filters, packets, payloads, records, segments

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (packets, broker, doors, payloads, filters, configuration, accounts, segments, records, deliverylog)
    for target in module.TARGETS
}
