"""Follows one PUBLISH through the code: which files and functions it visits, and how often the file changes.

python tools/follow_publish.py                    count the files, functions and changes of file of `round-trip`
python tools/follow_publish.py JOURNEY            count those of another journey: JOURNEYS below has them
python tools/follow_publish.py [JOURNEY] --list   print the journey in order: each change of file, and the function
python tools/follow_publish.py --json             print all journeys with every call, for docs/architecture.md's test

Two gateways, a.0 and b.0, run on virtual time, each with a journal. A journey is a script of their clients: what stands
before it is played unrecorded, also once with the same message, so that caches are filled as they are in a gateway that
runs. Calls are recorded with `sys.setprofile`, which sees interpreted functions alone: the tool runs in a tree without
compiled modules, as `python tools/puretree.py FOLDER` makes one, and elsewhere it ends with exit code 2. Functions of
the simulation and the standard library do not count, nor does the codec where a simulated client uses it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bridge"), str(ROOT / "firmware-sim")]

COUNTED = ("edgebroker/", "bridge/edgebridge/")
"""The product. What stands for sockets and clocks here (edgelab) is none of it."""
CLIENTS = tuple(f"firmware-sim/edgelab/simworld/{name}.py" for name in ("client", "transcript", "notation"))
"""The simulated clients. What they call is no part of a gateway."""
HOMES = {"ann": "a.0", "fay": "a.0", "dee": "b.0"}
"""Client -> gateway."""
CONNECTED = """
    dee > CONNECT    dee < CONNACK
    ann > CONNECT    ann < CONNACK
    fay > CONNECT    fay < CONNACK
"""
DURABLE = """
    dee > CONNECT clean=0 session=3600    dee < CONNACK present=0
    ann > CONNECT                         ann < CONNACK
    fay > CONNECT clean=0 session=3600    fay < CONNACK present=0
"""
FILTER = "$filter/temp%3E30/+/climate qos=1"
SUBSCRIBED = {name: f"{name} > SUBSCRIBE {FILTER}    {name} < SUBACK granted=1\n" for name in ("fay", "dee")}
PUBLISHED = "ann > PUBLISH hall/climate '{\"temp\":31}' qos=1    ann < PUBACK"
RECEIVED = {name: f"    {name} < PUBLISH hall/climate '{{\"temp\":31}}' qos=1" for name in ("fay", "dee")}
ACKNOWLEDGED = {name: f"{name} > PUBACK\n" for name in ("fay", "dee")}
LOCAL = f"{PUBLISHED}{RECEIVED['fay']}\n"
REMOTE = f"{PUBLISHED}{RECEIVED['dee']}\n"
BOTH = f"{PUBLISHED}{RECEIVED['dee']}{RECEIVED['fay']}\n"
ACKNOWLEDGED_BY_BOTH = ACKNOWLEDGED["dee"] + ACKNOWLEDGED["fay"]


class Call(NamedTuple):
    """One function of the product was called. `file` is relative to the root; `function` has its class before it."""

    file: str
    function: str


class Script(NamedTuple):
    """A journey: what happens `before` it, and the `recorded` part, as `edgelab.simworld.transcript` reads scripts."""

    before: str
    recorded: str


JOURNEYS = {
    "round-trip": Script(
        CONNECTED + SUBSCRIBED["dee"] + SUBSCRIBED["fay"] + BOTH + ACKNOWLEDGED_BY_BOTH, BOTH + ACKNOWLEDGED_BY_BOTH
    ),
    "publish": Script(DURABLE + SUBSCRIBED["fay"] + LOCAL + ACKNOWLEDGED["fay"], LOCAL),
    "publish-to-another-site": Script(DURABLE + SUBSCRIBED["dee"] + REMOTE + ACKNOWLEDGED["dee"], REMOTE),
    "acknowledge": Script(DURABLE + SUBSCRIBED["fay"] + LOCAL, ACKNOWLEDGED["fay"]),
    "subscribe": Script(DURABLE, SUBSCRIBED["fay"].replace("temp", "humidity")),  # a filter that nothing has parsed yet
    "start": Script(DURABLE + SUBSCRIBED["fay"] + LOCAL, "broker crashes    ann < CLOSED    fay < CLOSED"),
}
"""`round-trip`: one QoS 1 PUBLISH that a reader at the same gateway and one at another site asked for by content, its
PUBACK, and theirs. No session outlives its connection there; in the others those of the readers do. `start`: a gateway
starts whose journal holds a session, its subscription and a message that was not acknowledged."""


@dataclass(frozen=True)
class Journey:
    """All calls of functions of the product, in order."""

    calls: list[Call]

    @property
    def files(self) -> list[str]:
        """The files that are visited, sorted."""
        return sorted({call.file for call in self.calls})

    @property
    def functions(self) -> int:
        """How many different functions are called."""
        return len(set(self.calls))

    @property
    def changes(self) -> list[Call]:
        """The calls into another file than that of the call before."""
        pairs = zip([None, *self.calls], self.calls, strict=False)
        return [call for before, call in pairs if before is None or before.file != call.file]

    def summary(self) -> str:
        return f"{len(self.files)} files, {self.functions} functions, {len(self.changes)} changes of file"


def journey(script: Script) -> Journey:
    """Play *script* on two gateways with journals and record the calls of its recorded part.

    Raises TranscriptDiffers if a client receives something else than the script says.
    """
    from edgebroker.overlay.scot import Scot
    from edgebroker.overlay.topology.factor import Factor
    from edgebroker.overlay.topology.topology import Topology
    from edgelab.simworld.gateways import SimulatedGateways
    from edgelab.simworld.simulation import Simulation
    from edgelab.simworld.transcript import FederationPlayer

    topology = Topology.product(Scot(Factor.parse("a-b"), 1))
    gateways = SimulatedGateways(Simulation(7), topology, is_stored=True)
    gateways.wait_for_links()
    player = FederationPlayer(gateways, HOMES)
    player.play(script.before)
    return Journey(recorded(lambda: player.play(script.recorded)))


def recorded(action: Callable[[], None]) -> list[Call]:
    """The calls of functions of the product while *action* runs. Modules that are imported meanwhile do not count."""
    calls: list[Call] = []
    places: dict[CodeType, Call] = {}

    def place(code: CodeType) -> Call:
        if code not in places:
            path = Path(code.co_filename)
            file = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
            places[code] = Call(file, code.co_qualname)
        return places[code]

    def is_by_client(frame: FrameType | None) -> bool:
        while frame is not None and not place(frame.f_code).file.startswith("firmware-sim/"):
            frame = frame.f_back
        return frame is not None and place(frame.f_code).file in CLIENTS

    def on_event(frame: FrameType, event: str, argument: object) -> None:
        call = place(frame.f_code)
        is_counted = event == "call" and call.file.startswith(COUNTED) and call.function != "<module>"
        if is_counted and not is_by_client(frame):
            calls.append(call)

    sys.setprofile(on_event)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


def compiled_modules() -> list[str]:
    """The modules of the product that an import would take from a compiled file of this tree."""
    folders = (ROOT / folder for folder in COUNTED)
    return sorted(
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix in (".so", ".pyd")
    )


def main(arguments: list[str]) -> int:
    """Do what the *arguments* of the command ask for, and return the exit code."""
    options = {one for one in arguments if one.startswith("--")}
    names = [one for one in arguments if one not in options]
    if options - {"--json", "--list"} or len(names) > 1 or not set(names) <= set(JOURNEYS):
        print(__doc__, f"\nJourneys: {', '.join(JOURNEYS)}", file=sys.stderr)
        return 2
    if compiled := compiled_modules():
        print(
            f"This tree has compiled modules ({compiled[0]} is one), and calls of compiled functions cannot be seen. "
            "Make a tree without any, and run this tool there:\n"
            "  python tools/puretree.py build/pure && python build/pure/tools/follow_publish.py",
            file=sys.stderr,
        )
        return 2
    if "--json" in options:
        found = {name: journey(JOURNEYS[name]) for name in names or JOURNEYS}
        json.dump(
            {
                name: {"files": one.files, "functions": one.functions, "changes": len(one.changes), "calls": one.calls}
                for name, one in found.items()
            },
            sys.stdout,
        )
        return 0
    name = names[0] if names else "round-trip"
    followed = journey(JOURNEYS[name])
    if "--list" in options:
        for call in followed.changes:
            print(f"{call.file:<60} {call.function}")
    print(f"{name}: {followed.summary()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
