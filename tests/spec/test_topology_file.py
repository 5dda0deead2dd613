"""The topology file, and `edgebroker topology`: what is taken, refused, drawn and planned."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from edgebroker.cli.topology import command
from edgebroker.cli.topology.drawing import svg_drawing
from edgebroker.cli.topology.toml_text import toml_text
from edgebroker.names import Address, ClientAddress
from edgebroker.overlay.topology.draft import DialPreference, Uplink
from edgebroker.overlay.topology.topology import Topology
from edgebroker.runtime.settings import SettingsRefused
from edgebroker.runtime.topology_file import SECTIONS, load_topology, parse_topology

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "deploy" / "topologies" / "three-sites.toml"

SMALL = """\
[federation]
name = "plant"
[factor]
tree = "a-b"
[[site]]
name = "north"
[[gateway]]
name = "n1"
site = "north"
positions = ["a"]
address = "n1:1"
[[gateway]]
name = "n2"
site = "north"
positions = ["b"]
"""


def parse(text: str) -> Topology:
    return parse_topology(text, "t.toml")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, list(map(str, arguments)))


def test_a_file_is_read() -> None:
    topology = load_topology(EXAMPLE)
    assert (topology.federation, topology.factor.positions) == ("plant", ("hall", "yard", "gate", "dock"))
    assert [(site.name, site.index) for site in topology.sites] == [("north", 0), ("south", 1), ("east", 2)]
    assert [one.number for one in topology.gateways] == list(range(7))
    assert topology.sites[1].uplink == Uplink("metered", 1_000, None, 50_000_000, cost=1)
    assert topology.sites[2].uplink == Uplink("metered", 500, cost=1)
    south = topology.gateway("south-1")
    assert (south.home, south.positions) == ("yard", ("yard", "hall"))
    assert topology.connection("south-1", "east-1").dial.dialler == "east-1"
    assert topology.connection("south-1", "north-1").dial.addresses == (
        Address("south.example.org", 8884),
        Address("2001:db8:5::1", 8884),
    )


def test_numbers_and_indices_follow_from_the_place_unless_they_are_given() -> None:
    text = (
        SMALL.replace('name = "n1"', 'name = "n1"\nnumber = 7')
        + '[[site]]\nname="s"\n[[gateway]]\nname="s1"\nsite="s"\naddress="s1:1"\n'
    )
    topology = parse(text)
    assert [(one.name, one.number) for one in topology.gateways] == [("n1", 7), ("n2", 8), ("s1", 9)]
    swapped = text.replace('name = "north"', 'name = "north"\nindex = 1', 1).replace(
        'name="s"\n[[g', 'name="s"\nindex=0\n[[g'
    )
    assert [site.name for site in parse(swapped).sites] == ["s", "north"]


def test_a_link_may_say_who_dials_and_where() -> None:
    exception = '[[link]]\nbetween = ["n2", "n1"]\ndials = "n1"\naddress = ["[::1]:2", "x:3"]\n'
    dial = parse(SMALL + exception).connection("n1", "n2").dial
    assert (dial.dialler, dial.addresses) == ("n1", (Address("::1", 2), Address("x", 3)))
    assert (
        parse(SMALL.replace('site = "north"', 'site = "north"\ndials = "never"', 1)).draft.gateways[0].dials
        is DialPreference.NEVER
    )


def test_a_gateway_may_say_where_its_clients_connect(tmp_path: Path) -> None:
    text = SMALL + 'clients = ["mqtt://n2:1883", "mqtts://[2001:db8::2]:8883"]\n'
    topology = parse(text)
    addresses = (ClientAddress(False, Address("n2", 1883)), ClientAddress(True, Address("2001:db8::2", 8883)))
    assert (topology.client_addresses("n1"), topology.client_addresses("n2")) == ((), addresses)
    assert topology.digest == parse(SMALL).digest, "gateways with the old file and with the new one meet"
    assert parse(toml_text(topology.draft)).draft.gateways == topology.draft.gateways
    file, old = tmp_path / "t.toml", tmp_path / "old.toml"
    file.write_text(text)
    old.write_text(SMALL)
    told = json.loads(run("check", file, "--against", old, "--json").stdout)
    assert told["gateways"][1]["clients"] == ["mqtt://n2:1883", "mqtts://[2001:db8::2]:8883"]
    change = "gateway n2 has clients mqtt://n2:1883, mqtts://[2001:db8::2]:8883, had none"
    assert told["changes"] == [{"text": change, "is_live": True}]
    drawn = run("show", file, "--gateway", "n2").stdout.splitlines()
    assert "clients connect at mqtt://n2:1883, mqtts://[2001:db8::2]:8883" in drawn


REFUSALS = {
    "": [
        "t.toml: federation: is missing; write a section [federation]",
        "t.toml: factor: is missing; write a section [factor]",
    ],
    "[federation]\n[factor]\n": [
        "t.toml:1: federation.name: is missing; give the federation a name",
        't.toml:2: factor.tree: is missing; write paths of positions, like "a-b-c"',
    ],
    "[listener]\nport = 1\n": [
        "t.toml:1: listener: unknown section; there are federation, factor, site, gateway, link"
    ],
    SMALL + 'adress = "n1:8"\n': ["t.toml:16: gateway.adress: unknown key; did you mean address?"],
    SMALL + 'address = "n1"\n': [
        't.toml:16: gateway.address: is \'n1\'; write host:port, like "gw.example.org:8884" or "[2001:db8::1]:8884"'
    ],
    SMALL + 'clients = ["mqtt://n2:1883", "http://n2:80"]\n': [
        "t.toml:16: gateway.clients: is 'http://n2:80'; write mqtt://host:port, or mqtts://host:port for TLS"
    ],
    SMALL + 'clients = "mqtt://n1:1"\n': [
        "t.toml:16: gateway.clients: n1:1 is where gateways reach n1; name the port of a listener for clients"
    ],
    SMALL.replace('address = "n1:1"', 'address = "n1:1"\nclients = "mqtt://n:1883"') + 'clients = "mqtts://n:1883"\n': [
        "t.toml:17: gateway.clients: n:1883 is that of n1 too; give each gateway an address of its own"
    ],
    SMALL + 'client = "mqtt://n2:1883"\n': ["t.toml:16: gateway.client: unknown key; did you mean clients?"],
    SMALL.replace('"a-b"', '"a--b"'): [
        't.toml:4: factor.tree: is \'a--b\'; write positions with "-" between, like "a-b-c"'
    ],
    SMALL.replace('"a-b"', '"a-b-a"'): ["t.toml:4: factor.tree: b-a stands there twice; leave one out"],
    SMALL.replace('["b"]', '["a"]'): [
        "t.toml:6: site.name: nobody at north holds b; give b to n1, which holds a neighbour",
        "t.toml:15: gateway.positions: a of north is held by n1 too; take it from one of them",
    ],
    SMALL.replace('site = "north"', 'site = "nort"', 1).replace('["b"]', '["B"]'): [
        "t.toml:9: gateway.site: 'nort' is no site; did you mean north?",
        "t.toml:15: gateway.positions: 'B' is no position; there are a, b",
    ],
    SMALL.replace('address = "n1:1"\n', ""): [
        "t.toml:12: gateway.name: neither n2 nor n1 is reached by the other; give one of them a lan or another address"
    ],
    SMALL + '[[link]]\nbetween = ["n1", "n1"]\n': [
        "t.toml:16: link.dials: is missing; say which of them dials",
        "t.toml:17: link.between: names n1 and n1; name two gateways",
    ],
    SMALL + '[[site]]\nname = "far"\nuplink = "meterd"\nbatch_ms = -1\n': [
        "t.toml:18: site.uplink: is 'meterd'; did you mean \"metered\"?",
        "t.toml:19: site.batch_ms: is -1; write a number, 0 to 60,000",
    ],
}


@pytest.mark.parametrize(("text", "told"), REFUSALS.items(), ids=map(str, range(len(REFUSALS))))
def test_every_mistake_is_told_at_its_line(text: str, told: list[str]) -> None:
    with pytest.raises(SettingsRefused) as refused:
        parse(text)
    assert str(refused.value).splitlines() == told


def test_more_gateways_than_there_are_numbers_are_refused_at_once() -> None:
    text = SMALL + '[[gateway]]\nname = "x"\nsite = "north"\npositions = ["a"]\n' * 1_100
    with pytest.raises(SettingsRefused, match="has 1102 entries; write 1 to 1024"):
        parse(text)


# -- commands --------------------------------------------------------------------------------------------------------


def test_check_says_what_a_topology_promises() -> None:
    result = run("check", EXAMPLE)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{EXAMPLE}: OK",
        "federation plant: 3 sites, 7 gateways, 4 positions; digest fa23a408b0821401",
        "stands for 12 brokers with 9 aLinks and 12 iLinks; no way is longer than 4 links",
        "14 connections between gateways: 4 inside sites, 10 between sites",
        "whichever 2 gateways or 2 connections may fail: what is left stays joined",
    ]


def test_check_says_the_same_for_programs() -> None:
    told = json.loads(run("check", EXAMPLE, "--json").stdout)
    assert told["ok"] is True
    assert (told["positions"], told["brokers"], told["a_links"], told["i_links"], told["diameter"]) == (4, 12, 9, 12, 4)
    assert (told["connections_inside"], told["connections_across"]) == (4, 10)
    assert (told["tolerated_gateways"], told["tolerated_connections"]) == (2, 2)
    assert told["gateways"][6]["peers"] == ["north-2", "north-1", "north-3", "north-4", "south-1", "south-2"]


def test_check_refuses_with_every_mistake(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text(SMALL.replace('["b"]', '["a"]'))
    result = run("check", file)
    assert result.exit_code == 2
    assert re.findall(r":(\d+): ", result.stderr) == ["6", "15"]
    told = json.loads(run("check", file, "--json").stdout)
    assert (told["ok"], [one["line"] for one in told["problems"]]) == (False, [6, 15])
    assert run("check", tmp_path / "none.toml").exit_code == 2


@pytest.mark.parametrize(
    ("given", "cost"), [("", 0), ('uplink = "metered"', 1), ("cost = 7", 7), ("cost = 1001", None)]
)
def test_what_an_uplink_costs(tmp_path: Path, given: str, cost: int | None) -> None:
    file = tmp_path / "t.toml"
    file.write_text(SMALL.replace("[[site]]", f"[[site]]\n{given}", 1))
    result = run("check", file)
    assert result.exit_code == (2 if cost is None else 0)
    if cost is not None:
        uplink = load_topology(file).sites[0].uplink
        assert uplink.cost == cost
        assert ("cost 7" in str(uplink)) == (cost == 7)


@pytest.mark.parametrize(("octets", "code"), [(255, 2), (256, 0), (8_192, 0), (8_193, 2)])
def test_check_knows_how_many_bytes_a_covering_may_take(tmp_path: Path, octets: int, code: int) -> None:
    file = tmp_path / "t.toml"
    file.write_text(SMALL.replace("[[site]]", f"[[site]]\ncovering_bytes = {octets}", 1))
    result = run("check", file)
    assert result.exit_code == code
    assert ("covering_bytes" in result.stderr) == (code == 2)
    if code == 0:
        assert load_topology(file).sites[0].uplink.covering_bytes == octets


def changed(tmp_path: Path, *changes: tuple[str, str]) -> Result:
    """`check` of the example with other texts, against the example."""
    text = EXAMPLE.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    file = tmp_path / "new.toml"
    file.write_text(text)
    return run("check", file, "--against", EXAMPLE, "--json")


WEST = '\n[[site]]\nname = "west"\n\n[[gateway]]\nname = "west-1"\nsite = "west"\n'
EAST_2 = '\n[[gateway]]\nname = "east-2"\nsite = "east"\npositions = ["dock"]\nlan = "10.3.0.2:1"\n'
ALONE = "  # alone there: it holds every position, and dials everybody\n"

LIVE = {
    "comments": ([("# two", "# still two"), ("fa", "fa")][:1], []),
    "an address": (
        [("north.example.org:8884", "north.example.net:1")],
        ["gateway north-1 has address north.example.net:1, had north.example.org:8884"],
    ),
    "who dials": (
        [('lan = "10.1.0.12:8884"', 'dials = "always"')],
        ["gateway north-2 has lan none, had 10.1.0.12:8884", "gateway north-2 dials always, dialled auto"],
    ),
    "an uplink": (
        [("50_000_000", "60_000_000")],
        [
            "site south has another uplink: metered, 1000 ms, 60,000,000 bytes a day, "
            "had metered, 1000 ms, 50,000,000 bytes a day"
        ],
    ),
    "a new site": ([(ALONE, ALONE + 'address = "e:1"\n' + WEST)], []),
    "a new gateway": (
        [(ALONE, '\npositions = ["hall", "yard", "gate"]\n' + EAST_2 + 'address = "east.example.org:1"\n')],
        ["gateway east-1 loses dock", "gateway east-2 is new"],
    ),
    "a gateway that is gone, whose position its neighbour takes": (
        [
            (
                '[[gateway]]\nname = "south-2"\nsite = "south"\npositions = ["gate", "dock"]\n'
                'address = "south.example.org:8885"\nlan = "10.2.0.12:8884"\n',
                "",
            ),
            ('positions = ["yard", "hall"]', 'positions = ["yard", "hall", "gate", "dock"]'),
            ('name = "east-1"', 'name = "east-1"\nnumber = 6'),
        ],
        ["gateway south-2 is gone", "gateway south-1 gains dock, gate"],
    ),
    "an exception": (
        [(ALONE, '\n[[link]]\nbetween = ["north-1", "south-1"]\ndials = "south-1"\n')],
        ["the link between north-1 and south-1 is another exception"],
    ),
}
LIVE["a new site"][1].extend(
    ["site west is new", "gateway east-1 has address e:1, had none", "gateway west-1 is new"],
)
RESTART = {
    "another name": ([('"plant"', '"farm"')], ["federation plant is called farm"]),
    "another tree": (
        [
            ('["hall-yard-gate-dock"]', '["hall-yard-gate", "yard-dock"]'),
            ('["gate", "dock"]', '["gate"]'),
            ('["yard", "hall"]', '["yard", "hall", "dock"]'),
        ],
        ["the tree loses dock-gate and gains dock-yard", "gateway south-1 gains dock", "gateway south-2 loses dock"],
    ),
    "another index": (
        [('name = "north"', 'name = "north"\nindex = 1'), ('name = "south"', 'name = "south"\nindex = 0')],
        ["site south has index 0, had 1", "site north has index 1, had 0"],
    ),
    "another number": (
        [('name = "north-4"', 'name = "north-4"\nnumber = 9')],
        [
            "gateway north-4 has number 9, had 3",
            "gateway south-1 has number 10, had 4",
            "gateway south-2 has number 11, had 5",
            "gateway east-1 has number 12, had 6",
        ],
    ),
    "another gateway": (
        [('name = "east-1"', 'name = "east-9"')],
        ["gateway east-1 is gone", "gateway east-9 is new, with the number 6 of east-1"],
    ),
    "another home": (
        [('["yard", "hall"]', '["hall", "yard"]')],
        ["gateway south-1 has its home at hall, had it at yard"],
    ),
    "positions that move": (
        [('["yard", "hall"]', '["hall"]'), ('["gate", "dock"]', '["gate", "dock", "yard"]')],
        [
            "gateway south-1 loses yard",
            "gateway south-1 has its home at hall, had it at yard",
            "gateway south-2 gains yard",
        ],
    ),
}


@pytest.mark.parametrize(("changes", "told"), LIVE.values(), ids=LIVE)
def test_what_running_gateways_can_take(tmp_path: Path, changes: list[tuple[str, str]], told: list[str]) -> None:
    result = changed(tmp_path, *changes)
    answer = json.loads(result.stdout)
    assert [change["text"] for change in answer["changes"]] == told
    assert (answer["is_live"], result.exit_code) == (True, 0)


@pytest.mark.parametrize(("changes", "told"), RESTART.values(), ids=RESTART)
def test_what_needs_a_restart(tmp_path: Path, changes: list[tuple[str, str]], told: list[str]) -> None:
    result = changed(tmp_path, *changes)
    answer = json.loads(result.stdout)
    assert [change["text"] for change in answer["changes"]] == told
    assert (answer["is_live"], result.exit_code) == (False, 1)


def test_only_what_is_taken_over_by_another_may_go(tmp_path: Path) -> None:
    answer = json.loads(changed(tmp_path, *RESTART["another tree"][0]).stdout)
    assert [change["is_live"] for change in answer["changes"]] == [False, False, True]


def test_differences_are_told_to_people() -> None:
    result = run("check", EXAMPLE, "--against", EXAMPLE)
    assert result.stdout.splitlines()[-1] == f"means the same as {EXAMPLE}, in every respect"


def test_the_drawing_has_every_holder_in_its_place() -> None:
    lines = run("show", EXAMPLE).stdout.splitlines()
    assert lines[2:8] == [
        "position    north (0)  south (1)  east (2)",
        "            wan        metered    metered",
        "gate        north-3*   south-2*   east-1",
        "├─ yard     north-1*   south-1*   east-1",
        "│  └─ hall  north-2*   south-1    east-1*",
        "└─ dock     north-4*   south-2    east-1",
    ]


def test_a_gateway_is_shown_with_its_connections() -> None:
    lines = run("show", EXAMPLE, "--gateway", "south-2").stdout.splitlines()
    assert lines[:2] == ["south-2: number 5, at south (1)", "holds gate, dock; its home is gate"]
    assert [line.split()[0] for line in lines[4:]] == ["south-1", "north-3", "north-4", "east-1"]
    assert "iLinks gate, dock" in lines[-1]


def test_a_picture_is_a_document_with_every_name(tmp_path: Path) -> None:
    file = tmp_path / "t.svg"
    assert run("show", EXAMPLE, "--svg", file).exit_code == 0
    tree = ElementTree.parse(file)
    texts = {element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")}
    topology = load_topology(EXAMPLE)
    assert texts >= {one.name for one in topology.gateways} | {site.name for site in topology.sites}
    assert texts >= set(topology.factor.positions)
    circles = [element.get("class") for element in tree.iter("{http://www.w3.org/2000/svg}circle")]
    assert circles.count("home") == len(topology.gateways) + 1, "and that of the legend"
    assert circles.count("held") == len(topology.scot) - len(topology.gateways) + 1


def test_the_picture_of_the_page_is_that_of_the_example() -> None:
    """`edgebroker topology show deploy/topologies/three-sites.toml --svg docs/topology.svg` makes it again."""
    page = (ROOT / "docs" / "topology.svg").read_text(encoding="utf-8")
    assert page == svg_drawing(load_topology(EXAMPLE))


@pytest.mark.parametrize(
    ("sites", "gateways", "told"),
    [
        (1, "3", "one site: a gateway that fails divides the others, unless it stands at an end of the tree"),
        (2, "1", "whichever 1 gateway may fail: what is left stays joined"),
        (3, "1", "whichever 2 gateways or 1 connection may fail: what is left stays joined"),
        (2, "1,2", "whichever 1 gateway or 1 connection may fail: what is left stays joined"),
    ],
)
def test_no_more_is_promised_than_holds(tmp_path: Path, sites: int, gateways: str, told: str) -> None:
    file = tmp_path / "t.toml"
    file.write_text(run("plan", "--sites", sites, "--gateways", gateways).stdout)
    assert run("check", file).stdout.splitlines()[-1] == told


def test_a_plan_is_a_topology(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    result = run("plan", "--sites", 5, "--gateways", "4,3,1,4,2", "--name", "plant", "--uplink", "metered")
    assert result.exit_code == 0
    file.write_text(result.stdout)
    topology = load_topology(file)
    assert topology.draft.tree == ("p1-p2-p3-p4",)
    sizes = [[len(one.positions) for one in topology.gateways if one.cluster == j] for j in range(5)]
    assert sizes == [[1, 1, 1, 1], [1, 1, 2], [4], [1, 1, 1, 1], [2, 2]]
    assert {site.uplink.kind for site in topology.sites} == {"metered"}
    assert "# No way is longer than 4 links; no gateway has more than 13 connections and 16 iLinks." in result.stdout


def test_sites_of_a_plan_may_have_names() -> None:
    result = run("plan", "--sites", "north,south", "--gateways", 2, "--port", 7)
    topology = parse(result.stdout)
    assert [one.name for one in topology.gateways] == ["gw-north1", "gw-north2", "gw-south1", "gw-south2"]
    assert topology.connection("gw-north1", "gw-south1").dial.addresses == (Address("gw-south1", 7),)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--sites", "3", "--gateways", "1,2"), "2 numbers for 3 sites"),
        (("--sites", "17", "--gateways", "1"), "1 to 16 are possible"),
        (("--sites", "0", "--gateways", "1"), "1 to 16 are possible"),
        (("--sites", "2", "--gateways", "1,x"), "numbers with ',' between"),
        (("--sites", "2", "--gateways", "65"), "a site has 1 to 64"),
        (("--sites", "a,a", "--gateways", "1"), "names one twice"),
        (("--sites", "a b", "--gateways", "1"), "letters, digits"),
    ],
)
def test_what_cannot_be_planned_is_refused(arguments: tuple[str, ...], told: str) -> None:
    result = run("plan", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_the_page_has_every_key() -> None:
    page = (ROOT / "docs" / "topology.md").read_text(encoding="utf-8")
    for name, section in SECTIONS.items():
        assert f"[{name}]" in page
        for key in section.keys:
            assert f"`{key}`" in page, f"{name}.{key}"
