"""Clients of gateways at several sites, who do not know that there are several."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.admin import clear_retained
from edgebridge.frontend.federation.persistence import IDS_RESERVED
from edgebridge.session.access import AccessPolicy
from edgebridge.session.acl import Acl
from edgebridge.session.authorization import AclRights
from edgebroker.filters import attributes
from edgebroker.filters.payloads import payload_tree
from edgebroker.header import PUBLISHED_MS_MAX, EventHeader, hosted
from edgebroker.instants import SECOND
from edgebroker.limits import ADVERTISEMENTS_PER_CLIENT_MAX
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.publication import Publication
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.transcript import FederationPlayer

HOMES = {"ann": "a.0", "bob": "b.0", "cem": "a.1", "dee": "b.1", "eva": "b.2"}


def federation(is_stored: bool = False) -> FederationPlayer:
    gateways = SimulatedGateways(Simulation(7), Topology.product(Scot(Factor.parse("a-b"), 3)), is_stored=is_stored)
    gateways.wait_for_links()
    return FederationPlayer(gateways, HOMES)


def all_balanced(sites: FederationPlayer) -> None:
    for gateway in sites.gateways:
        ledger = gateway.ledger
        ended = ledger.delivered + ledger.expired + sum(ledger.dropped.values())
        assert ledger.matched == ended + ledger.queued
        assert ledger.queued == gateway.waiting, gateway.name


def test_a_filter_at_another_site_gets_what_it_asks_for() -> None:
    sites = federation()
    sites.play("""
    dee > CONNECT                                   dee < CONNACK
    dee > SUBSCRIBE $filter/temp%3E30/+/climate     dee < SUBACK granted=0
    ann > CONNECT                                   ann < CONNACK
    ann > PUBLISH hall/climate '{"temp":31}'        dee < PUBLISH hall/climate '{"temp":31}'
    ann > PUBLISH hall/climate '{"temp":29}'
    ann > PUBLISH hall/door '{"temp":31}'
    dee > UNSUBSCRIBE $filter/temp%3E30/+/climate   dee < UNSUBACK
    ann > PUBLISH hall/climate '{"temp":31}'
    """)
    all_balanced(sites)


def test_a_gateway_reads_a_payload_once_for_its_own_readers_and_for_its_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []

    def counted(payload: bytes, *kind: Any, **more: Any) -> Any:
        read.append(payload)
        return payload_tree(payload, *kind, **more)

    monkeypatch.setattr(attributes, "payload_tree", counted)
    gateways = SimulatedGateways(Simulation(7), Topology.product(Scot(Factor.parse("a-b"), 1)))
    gateways.wait_for_links()
    sites = FederationPlayer(gateways, {"ann": "a.0", "dee": "b.0"})
    sites.play("""
    dee > CONNECT                                   dee < CONNACK
    dee > SUBSCRIBE $filter/temp%3E30/+/climate     dee < SUBACK granted=0
    ann > CONNECT                                   ann < CONNACK
    ann > SUBSCRIBE $filter/temp%3E31/+/climate     ann < SUBACK granted=0
    ann > PUBLISH hall/climate '{"temp":31}'        dee < PUBLISH hall/climate '{"temp":31}'
    """)
    assert read == [b'{"temp":31}'] * 2, "once by the gateway of ann, once by that of dee"


def test_qos_is_kept_across_sites_and_order_too() -> None:
    sites = federation(is_stored=True)
    sites.play("""
    dee > CONNECT                   dee < CONNACK
    dee > SUBSCRIBE t qos=2         dee < SUBACK granted=2
    ann > CONNECT                   ann < CONNACK
    ann > PUBLISH t qos=1 "one"     ann < PUBACK         dee < PUBLISH t qos=1 "one"
    dee > PUBACK
    ann > PUBLISH t qos=2 "two"     ann < PUBREC         dee < PUBLISH t qos=2 "two"
    ann > PUBREL                    ann < PUBCOMP
    dee > PUBREC                    dee < PUBREL
    dee > PUBCOMP
    ann > PUBLISH t "three"         dee < PUBLISH t "three"
    """)
    all_balanced(sites)


def test_what_mqtt_knows_of_a_message_crosses_with_it() -> None:
    sites = federation()
    said = 't "x" type="a/b" response="r" correlation="c" format=1 user.k="v" user.l="w"'
    sites.play(f"""
    dee > CONNECT          dee < CONNACK
    dee > SUBSCRIBE t      dee < SUBACK granted=0
    ann > CONNECT          ann < CONNACK
    ann > PUBLISH {said}   dee < PUBLISH {said}
    """)


def test_a_will_is_heard_at_other_sites() -> None:
    sites = federation()
    sites.play("""
    dee > CONNECT              dee < CONNACK
    dee > SUBSCRIBE gone/#     dee < SUBACK granted=0
    ann > CONNECT will=gone/ann will-payload="ann"    ann < CONNACK
    ann cut                    dee < PUBLISH gone/ann "ann"
    """)
    all_balanced(sites)


def test_what_an_operator_clears_is_cleared_everywhere() -> None:
    sites = federation()
    sites.play("""
    ann > CONNECT                     ann < CONNACK
    dee > CONNECT                     dee < CONNACK
    dee > SUBSCRIBE #                 dee < SUBACK granted=0
    ann > PUBLISH t retain=1 "old"    dee < PUBLISH t "old"
    """)
    [gateway] = [one for one in sites.gateways if one.name == "a.0"]
    clear_retained(gateway.frontend, "t", gateway.simulation.now)
    sites.play("""
    ann > PINGREQ                     ann < PINGRESP        dee < PUBLISH t ""
    bob > CONNECT                     bob < CONNACK
    bob > SUBSCRIBE t                 bob < SUBACK granted=0
    """)
    all_balanced(sites)


@pytest.mark.parametrize(("rules", "gets"), [("topic #", 'cem < PUBLISH t retain=1 "1"'), ("topic read #", "")])
def test_what_is_retained_of_whom_lost_the_right_is_kept_back_from_late_subscribers_anywhere(
    rules: str, gets: str
) -> None:
    """The gateway that has the original is asked, and knows who published it."""
    sites = federation()
    [gateway] = [one for one in sites.gateways if one.name == "a.0"]
    gateway.replace_access(AccessPolicy(rules=AclRights(Acl.parse("topic #"))))
    sites.play("""
    ann > CONNECT                     ann < CONNACK
    ann > PUBLISH t retain=1 "1"
    """)
    gateway.replace_access(AccessPolicy(rules=AclRights(Acl.parse(rules))))
    sites.play(f"cem > CONNECT    cem < CONNACK    cem > SUBSCRIBE t    cem < SUBACK granted=0    {gets}")
    all_balanced(sites)


def test_late_subscribers_anywhere_get_the_newest_retained_message() -> None:
    sites = federation()
    sites.play("""
    ann > CONNECT                     ann < CONNACK
    ann > PUBLISH t retain=1 "old"
    dee > CONNECT                     dee < CONNACK
    dee > SUBSCRIBE t                 dee < SUBACK granted=0    dee < PUBLISH t retain=1 "old"
    ann > PUBLISH t retain=1 "new"    dee < PUBLISH t "new"
    bob > CONNECT                     bob < CONNACK
    bob > SUBSCRIBE t                 bob < SUBACK granted=0    bob < PUBLISH t retain=1 "new"
    cem > CONNECT                     cem < CONNACK
    cem > SUBSCRIBE $filter/value%3D'new'/#   cem < SUBACK granted=0    cem < PUBLISH t retain=1 "new"
    ann > PUBLISH t retain=1 ""       dee < PUBLISH t ""        bob < PUBLISH t ""
    eva > CONNECT                     eva < CONNACK
    eva > SUBSCRIBE t                 eva < SUBACK granted=0
    """)
    all_balanced(sites)


@pytest.mark.parametrize("is_ahead", [False, True])
def test_who_has_seen_a_retained_message_replaces_and_clears_it_whatever_its_clock_says(is_ahead: bool) -> None:
    """One of the two clocks is three hours wrong."""
    gateways = SimulatedGateways(Simulation(7), Topology.product(Scot(Factor.parse("a-b"), 3)))
    gateways.wait_for_links()
    sites = FederationPlayer(gateways, {"ann": "a.0", "amy": "a.0", "eva": "a.2", "ida": "a.2", "bob": "b.0"})
    wrong, off_ms = ("a.0", 10_800_000) if is_ahead else ("a.2", -10_800_000)
    gateways[wrong].overlay.peers.unix_offset_ms += off_ms
    sites.play("""
    eva > CONNECT                     eva < CONNACK
    eva > SUBSCRIBE t                 eva < SUBACK granted=0
    ann > CONNECT                     ann < CONNACK
    ann > SUBSCRIBE t                 ann < SUBACK granted=0
    ann > PUBLISH t retain=1 "old"    ann < PUBLISH t "old"    eva < PUBLISH t "old"
    eva > PUBLISH t retain=1 "new"    ann < PUBLISH t "new"    eva < PUBLISH t "new"
    amy > CONNECT                     amy < CONNACK
    amy > SUBSCRIBE t                 amy < SUBACK granted=0   amy < PUBLISH t retain=1 "new"
    ann > PUBLISH t retain=1 "again"
    ann < PUBLISH t "again"   amy < PUBLISH t "again"   eva < PUBLISH t "again"
    eva > PUBLISH t retain=1 ""
    ann < PUBLISH t ""        amy < PUBLISH t ""        eva < PUBLISH t ""
    ida > CONNECT                     ida < CONNACK
    ida > SUBSCRIBE t                 ida < SUBACK granted=0
    bob > CONNECT                     bob < CONNACK
    bob > SUBSCRIBE t                 bob < SUBACK granted=0
    """)
    all_balanced(sites)


def test_several_clients_of_a_gateway_replace_and_clear_what_is_from_the_future_in_turn() -> None:
    """All that they say counts as of the same time, and the one whose number is lower comes last."""
    gateways = SimulatedGateways(Simulation(7), Topology.product(Scot(Factor.parse("a-b"), 2)))
    gateways.wait_for_links()
    sites = FederationPlayer(gateways, {"amy": "a.0", "ann": "a.0", "bob": "a.1", "eve": "a.1", "ida": "a.1"})
    gateways["a.1"].overlay.peers.unix_offset_ms += 10_800_000
    sites.play("""
    amy > CONNECT                       amy < CONNACK
    amy > PUBLISH first "1"
    ann > CONNECT                       ann < CONNACK
    ann > SUBSCRIBE t                   ann < SUBACK granted=0
    bob > CONNECT                       bob < CONNACK
    bob > SUBSCRIBE t                   bob < SUBACK granted=0
    bob > PUBLISH t retain=1 "ahead"    ann < PUBLISH t "ahead"    bob < PUBLISH t "ahead"
    ann > PUBLISH t retain=1 "ann"      ann < PUBLISH t "ann"      bob < PUBLISH t "ann"
    amy > PUBLISH t retain=1 "amy"      ann < PUBLISH t "amy"      bob < PUBLISH t "amy"
    eve > CONNECT                       eve < CONNACK
    eve > SUBSCRIBE t                   eve < SUBACK granted=0     eve < PUBLISH t retain=1 "amy"
    ann > PUBLISH t retain=1 "again"
    ann < PUBLISH t "again"   bob < PUBLISH t "again"   eve < PUBLISH t "again"
    amy > PUBLISH t retain=1 ""
    ann < PUBLISH t ""        bob < PUBLISH t ""        eve < PUBLISH t ""
    ida > CONNECT                       ida < CONNACK
    ida > SUBSCRIBE t                   ida < SUBACK granted=0
    """)
    assert [gateways[name].frontend.retained.find("t") for name in ("a.0", "a.1")] == [None, None]
    all_balanced(sites)


def test_what_is_retained_from_the_end_of_time_can_be_replaced() -> None:
    gateways = SimulatedGateways(Simulation(7), Topology.product(Scot(Factor.parse("a-b"), 2)), is_stored=True)
    gateways.wait_for_links()
    sites = FederationPlayer(gateways, {"cem": "a.1", "eva": "a.1"})
    header = EventHeader(hosted(gateways.topology.gateway("b.0").number, 1), 1, 0, 0, published_ms=PUBLISHED_MS_MAX)
    last = Publication("bob", "t", b"last", 0, True, gateways.simulation.now)
    gateways["a.1"].overlay.retained.retain(last, header, gateways.simulation.now)
    sites.play("""
    cem > CONNECT                      cem < CONNACK
    cem > PUBLISH t retain=1 "next"
    eva > CONNECT                      eva < CONNACK
    eva > SUBSCRIBE t                  eva < PUBLISH t retain=1 "next"    eva < SUBACK granted=0
    """)


def test_an_old_copy_does_not_follow_a_newer_original() -> None:
    """It is where no event enters but around what is down, so nobody there asks the gateway that has the original."""
    gateways = SimulatedGateways(Simulation(7), Topology.product(Scot(Factor.parse("a-b"), 2)))
    gateways.wait_for_links()
    sites = FederationPlayer(gateways, {"bob": "b.0", "bea": "b.0", "cem": "a.1"})
    number = gateways.topology.gateway("b.0").number
    header = EventHeader(hosted(number, 1), 1, 0, 0, published_ms=1)
    old = Publication("bob", "t", b"old", 0, True, gateways.simulation.now)
    gateways["a.1"].overlay.retained.retain(old, header, gateways.simulation.now)
    sites.play("""
    cem > CONNECT                    cem < CONNACK
    cem > PUBLISH u retain=1 "other"
    bob > CONNECT                    bob < CONNACK
    bob > PUBLISH t retain=1 "new"
    bea > CONNECT                    bea < CONNACK
    bea > SUBSCRIBE #
                                     bea < PUBLISH t retain=1 "new"    bea < SUBACK granted=0
                                     bea < PUBLISH u retain=1 "other"
    """)


def test_the_copy_of_a_retained_message_serves_while_its_gateway_is_away() -> None:
    sites = federation()
    gateways = sites.gateways
    sites.play("""
    dee > CONNECT                      dee < CONNACK
    dee > SUBSCRIBE t                  dee < SUBACK granted=0
    ann > CONNECT                      ann < CONNACK
    ann > PUBLISH t retain=1 "kept"    dee < PUBLISH t "kept"
    """)
    for peer in gateways["a.0"].roads:
        gateways.road("a.0", peer).cut()
    sites.play("""
    wait 1s
    cem > CONNECT         cem < CONNACK
    cem > SUBSCRIBE t     cem < PUBLISH t retain=1 "kept"    cem < SUBACK granted=0
    """)


def test_retained_messages_are_found_after_their_gateway_started_anew() -> None:
    sites = federation(is_stored=True)
    sites.play("""
    ann > CONNECT                               ann < CONNACK
    ann > PUBLISH t retain=1 qos=1 "kept"       ann < PUBACK
    broker crashes                              ann < CLOSED
    wait 20s
    dee > CONNECT                               dee < CONNACK
    dee > SUBSCRIBE t                           dee < SUBACK granted=0    dee < PUBLISH t retain=1 "kept"
    """)


def test_each_gateway_gives_a_shared_message_to_one_member() -> None:
    sites = federation()
    sites.play("""
    dee > CONNECT                 dee < CONNACK
    dee > SUBSCRIBE $share/g/t    dee < SUBACK granted=0
    cem > CONNECT                 cem < CONNACK
    cem > SUBSCRIBE t             cem < SUBACK granted=0
    ann > CONNECT                 ann < CONNACK
    ann > PUBLISH t "x"           dee < PUBLISH t "x"    cem < PUBLISH t "x"
    """)


def test_a_session_that_is_away_at_another_site_gets_what_came() -> None:
    sites = federation(is_stored=True)
    sites.play("""
    dee > CONNECT clean=0 session=3600    dee < CONNACK present=0
    dee > SUBSCRIBE t qos=1               dee < SUBACK granted=1
    dee cut
    ann > CONNECT                         ann < CONNACK
    ann > PUBLISH t qos=1 "x"             ann < PUBACK
    """)
    sites.gateways["b.1"].crash()
    sites.play("""
    wait 20s
    ann > PUBLISH t qos=1 "y"             ann < PUBACK
    dee > CONNECT clean=0 session=3600    dee < CONNACK present=1
    dee < PUBLISH t qos=1 "x"             dee < PUBLISH t qos=1 "y"
    """)


def test_nothing_acknowledged_is_lost_while_the_way_is_cut() -> None:
    sites = federation(is_stored=True)
    sites.play("""
    dee > CONNECT                dee < CONNACK
    dee > SUBSCRIBE t qos=1      dee < SUBACK granted=1
    ann > CONNECT                ann < CONNACK
    """)
    for road in sites.gateways.roads.values():
        road.cut()
    sites.play("""
    ann > PUBLISH t qos=1 "x"    ann < PUBACK
    broker crashes               ann < CLOSED
    """)
    for road in sites.gateways.roads.values():
        road.mend()
    sites.play('wait 60s    dee < PUBLISH t qos=1 "x"    dee > PUBACK')
    all_balanced(sites)


def test_topics_of_one_gateway_stay_there() -> None:
    sites = federation()
    sites.play("""
    dee > CONNECT                 dee < CONNACK
    dee > SUBSCRIBE $SYS/broker/connection/#    dee < SUBACK granted=0
    ann > CONNECT                 ann < CONNACK
    ann > PUBLISH $SYS/broker/connection/ann/state "1"
    """)


def test_stamps_of_messages_that_expired_go() -> None:
    sites = federation()
    short = "\n".join(f'ann > PUBLISH short/{number} retain=1 expiry=1 "x"' for number in range(40))
    long = "\n".join(f'ann > PUBLISH long/{number} retain=1 "x"' for number in range(40))
    sites.play(f"ann > CONNECT    ann < CONNACK\n{short}\nwait 1s")
    federated_retained = sites.gateways["a.0"].overlay.retained
    assert len(federated_retained) == 40
    sites.play(f"wait 120s\n{long}\nwait 1s")
    assert len(federated_retained) == 40


def test_numbers_of_publishers_do_not_come_again_after_a_power_cut() -> None:
    sites = federation(is_stored=True)
    gateway = sites.gateways["a.0"]
    given = 0
    for _ in range(3):
        before = gateway.overlay.peers.ids
        assert before.allocated >= given
        for _ in range(10):
            before.allocated += 4 * IDS_RESERVED  # more than the clock would allow for
            sites.play("wait 30s")  # an idle link is pinged within that: the gateway has a turn
        given = before.allocated
        gateway.crash()
        sites.gateways.wait_for_links()
        assert gateway.overlay.peers.ids is not before
    assert gateway.overlay.peers.ids.allocated >= given


def test_no_peer_is_met_before_the_numbers_of_a_run_are_on_disk() -> None:
    sites = federation(is_stored=True)
    gateway, simulation = sites.gateways["a.0"], sites.gateways.simulation
    assert gateway.store is not None
    gateway.store.disk.sync_us = (5 * SECOND, 5 * SECOND)
    first = gateway.overlay.peers.ids.allocated
    gateway.crash()
    simulation.run_until(simulation.now + 4 * SECOND)
    assert all(link.connection is None for link in gateway.overlay.links)
    gateway.crash()  # it leaves no trace of its run, and nobody else remembers one
    assert gateway.overlay.peers.ids.allocated > first
    simulation.run_until(simulation.now + 6 * SECOND)
    sites.gateways.wait_for_links(40 * SECOND)  # peers dial again after half a minute at most


def test_trees_with_a_dollar_sign_that_are_nobodys_cross_as_others_do() -> None:
    """Wildcards in the first level match them at no gateway, so nothing crosses for these."""
    sites = federation()
    sites.play("""
    dee > CONNECT                                dee < CONNACK
    eva > CONNECT                                eva < CONNACK
    ann > CONNECT                                ann < CONNACK
    dee > SUBSCRIBE $aws/things/+/shadow qos=1   dee < SUBACK granted=1
    eva > SUBSCRIBE # +/#                        eva < SUBACK granted=0,0
    ann > PUBLISH $aws/things/pump/shadow qos=1 retain=1 "x"
    dee < PUBLISH $aws/things/pump/shadow qos=1 "x"    ann < PUBACK    dee > PUBACK
    cem > CONNECT                                cem < CONNACK
    cem > SUBSCRIBE $aws/#                       cem < SUBACK granted=0
    cem < PUBLISH $aws/things/pump/shadow retain=1 "x"
    """)
    all_balanced(sites)


def test_a_client_with_many_prefixes_is_advertised_for_trees_with_a_dollar_sign_too() -> None:
    sites = federation()
    many = "\n".join(f'ann > PUBLISH many/{number}/x "x"' for number in range(ADVERTISEMENTS_PER_CLIENT_MAX + 2))
    sites.play(f"""
    dee > CONNECT                      dee < CONNACK
    dee > SUBSCRIBE $aws/things/#      dee < SUBACK granted=0
    ann > CONNECT                      ann < CONNACK
    {many}
    wait 2s
    ann > PUBLISH $aws/things/a "x"    dee < PUBLISH $aws/things/a "x"
    ann > PUBLISH $aws/things/b "y"    dee < PUBLISH $aws/things/b "y"
    """)
    all_balanced(sites)
