"""The events that gateways publish for each other, on reserved topics, and the directory of their sessions.

No client can publish to these topics, and none gets an event of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgebridge.frontend.federation.retained import FederatedRetained
from edgebridge.frontend.federation.roaming.roaming import RoamingSessions
from edgebridge.frontend.federation.shared_groups import FederatedGroups
from edgebridge.frontend.federation.wills import FederatedWills
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebroker.federation.bridge_pairs import PAIRS_TOPIC
from edgebroker.federation.effects import Effect
from edgebroker.federation.group_members import GROUPS_TOPIC
from edgebroker.federation.retained_claims import CLAIMS_TOPIC, FILES_TOPIC, SESSIONS_TOPIC, WILLS_TOPIC, address_of
from edgebroker.federation.router import FederationRouter
from edgebroker.federation.session_directory import SessionDirectory
from edgebroker.header import host_of
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.overlay.messages import Forward
from edgebroker.overlay.topology.topology import Topology

if TYPE_CHECKING:
    from edgebridge.frontend.federation.files import FederatedFiles  # loaded only where there are files


def create_directory(
    topology: Topology, peers: FederationRouter, session_journal: SessionJournal, run: bytes, roams: bool
) -> SessionDirectory:
    """Return the directory of a gateway, to which its journal reports sessions from now on, if there is a journal.

    run: random bytes, which name this run. roams: False: the directory knows nothing, and tells nothing.
    """
    others = (one.number for one in topology.gateways if one.number != peers.gateway.number)
    roams = roams and session_journal.storage is not None
    directory = SessionDirectory(peers.publisher, others, run, peers.unix_offset_ms, roams)
    session_journal.directory = directory if roams else None
    return directory


class GatewayEvents:
    """Hands each event to the part of the gateway that it is for."""

    def __init__(
        self,
        peers: FederationRouter,
        retained: FederatedRetained,
        wills: FederatedWills,
        directory: SessionDirectory,
        groups: FederatedGroups,
    ) -> None:
        self._peers = peers
        self._retained = retained
        self._wills = wills
        self._directory = directory
        self._groups = groups
        self._address = address_of(peers.gateway.number)
        self.roaming: RoamingSessions | None = None
        """The sessions that move between gateways; None: none do."""
        self.files: FederatedFiles | None = None
        """Gets chunks of files from other gateways; None: this one takes no files."""

    def receive(self, forward: Forward, now: Instant) -> list[Effect]:
        """Handle an event of a reserved topic."""
        topic, payload = forward.topic, forward.payload
        if topic == CLAIMS_TOPIC:
            self._retained.claimed(payload, now)
        elif topic == WILLS_TOPIC:
            self._wills.notice_received(payload, now)
        elif topic == GROUPS_TOPIC:
            self._groups.receive(forward, now)
        elif topic == PAIRS_TOPIC:
            return self._peers.receive_pair_event(forward, now)
        elif topic == SESSIONS_TOPIC:
            return self._directory.receive(host_of(forward.header.publisher), payload, now)
        elif topic == FILES_TOPIC:
            if self.files is not None:
                self.files.receive(forward, now)
            else:
                return self._deny_chunk(forward, now)
        elif topic == self._address and self.roaming is not None:
            self.roaming.receive(forward, now)
        return []

    def _deny_chunk(self, forward: Forward, now: Instant) -> list[Effect]:
        """Tell a gateway that asks for a chunk of a file that this one takes no files (any more)."""
        from edgebroker.federation.chunk_exchange import answer_without_files  # few gateways are asked

        answer = answer_without_files(forward.payload)
        if not answer:
            return []
        now_ms = now // MILLISECOND + self._peers.unix_offset_ms
        return [*self._peers.publisher.publish_to(host_of(forward.header.publisher), FILES_TOPIC, answer, now_ms)]
