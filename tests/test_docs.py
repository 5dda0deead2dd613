"""The documentation holds: command blocks are executed, links lead somewhere.

A block tagged `console` is a session in a shell: `$ command`, then exactly what it prints (`...` stands for anything,
in a line or alone on it for any lines). Comments in front of a block say what it needs:

    <!-- needs: gateway -->                 a gateway is running, on port 1883 as far as the reader is concerned; it
                                            answers questions on port 9883
    <!-- needs: mosquitto-clients -->       skipped where Mosquitto's clients are not installed
    <!-- publishes: a/b {"t": 1} -->        published when the block's subscribers are listening
    <!-- stops: gateway -->                 the section's gateway is stopped first, so that its delivery log is complete
    <!-- file: name.toml -->                the block is the content of a file that commands may name
    <!-- not executed: why -->              for blocks of `make`, `git clone` and `cd`, and for `text` with commands

The blocks between two headings are one test, in one folder. `edgebroker run` is the gateway of its section; a
subscriber without an end (`mosquitto_sub`, `edgebroker sub`) listens until its section ends.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from edgebroker.log_schema import Fate

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PATIENCE_S = 20  # for what another process is about to do; a machine under load may need seconds
PORT = "1883"
TLS_PORT = "8883"  # stands for the same: a section has one port
HTTP_PORT = "9883"
SUBACK = 0x90
HARMLESS = ("make", "git clone", "cd ")
TRACE = "edgebroker trace"
FILE_CLIENTS = tuple(f"edgebroker file {name}" for name in ("publish", "list", "status", "remove", "verify"))
LISTENERS = ("mosquitto_sub", "edgebroker sub", TRACE)
CLIENTS = ("mosquitto_sub", "mosquitto_pub", "edgebroker sub", "edgebroker pub", *FILE_CLIENTS)
ASKING = (TRACE, "edgebroker status", "edgebroker top", "edgebroker links", "edgebroker client", "edgebroker retained")

BLOCK = re.compile(r"(?P<comments>(?:^<!--.*?-->\n)*)^```(?P<tag>[^\n]*)\n(?P<body>.*?)^```$", re.M | re.S)
COMMENT = re.compile(r"<!--\s*(needs|publishes|stops|file|not executed):\s*(.*?)\s*-->", re.S)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """One fenced block with its comments, as (name, value)."""

    tag: str
    body: str
    comments: tuple[tuple[str, str], ...]

    def said(self, name: str) -> list[str]:
        return [value for known, value in self.comments if known == name]

    def needs(self, what: str) -> bool:
        return any(what in value for value in self.said("needs"))

    def commands(self) -> list[tuple[str, str]]:
        """(command, expected output). Lines after `$ ` that begin with `> ` continue the command."""
        found: list[tuple[str, str]] = []
        for line in self.body.splitlines(keepends=True):
            if line.startswith("$ "):
                found.append((line[2:], ""))
            else:
                assert found, f"a console block begins with {line!r}, not with a command"
                command, output = found[-1]
                going_on = line.startswith("> ") and not output
                found[-1] = (command + line[2:], "") if going_on else (command, output + line)
        return [(command.rstrip("\n"), output) for command, output in found]


@dataclass(frozen=True)
class Section:
    """What stands between two headings of a document, and every file the document tells the reader to write."""

    name: str
    blocks: tuple[Block, ...]
    files: tuple[Block, ...]


def sections(name: str, text: str) -> list[Section]:
    """The sections of a document that have something to execute."""
    headings = {0: name}
    blocks: dict[int, list[Block]] = {0: []}
    fences = list(BLOCK.finditer(text))
    for heading in re.finditer(r"^#+ (.*)$", text, re.M):
        if not any(fence.start() < heading.start() < fence.end() for fence in fences):
            headings[heading.start()] = f"{name}: {heading[1]}"
            blocks[heading.start()] = []
    for fence in fences:
        start = max(at for at in headings if at <= fence.start())
        comments = tuple(COMMENT.findall(fence["comments"]))
        blocks[start].append(Block(fence["tag"].split(" ")[0], fence["body"], comments))
    files = tuple(block for found in blocks.values() for block in found if block.said("file"))
    consoles = {at: tuple(block for block in found if block.tag == "console") for at, found in blocks.items()}
    return [Section(title, consoles[at], files) for at, title in headings.items() if consoles[at]]


def matches(expected: str, printed: str) -> bool:
    """Whether *printed* is *expected*, where `...` stands for anything."""
    pattern = re.escape(expected.rstrip("\n") + "\n").replace(re.escape("...\n"), "\0")
    pattern = re.sub(r"(^|(?<=\n))\0", "(?s:.*)", pattern).replace("\0", ".*\n").replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, printed.rstrip() + "\n") is not None


class Relay:
    """A port in front of the gateway's that counts the subscriptions granted or refused through it."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.subacks = threading.Semaphore(0)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.server.accept()
                gateway = socket.create_connection(("127.0.0.1", self.target))
                threading.Thread(target=self.pump, args=(client, gateway, False), daemon=True).start()
                threading.Thread(target=self.pump, args=(gateway, client, True), daemon=True).start()

    def pump(self, source: socket.socket, sink: socket.socket, watched: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
                if watched and data[0] == SUBACK:
                    self.subacks.release()
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


NOTHING: Mapping[str, re.Pattern[str]] = {}


@dataclass
class Process:
    """A command that goes on; what it has printed so far is in `printed`."""

    command: str
    expected: str
    popen: subprocess.Popen[str]
    printed: str = ""
    news: threading.Condition = field(default_factory=threading.Condition)

    def read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            with self.news:
                self.printed += line
                self.news.notify_all()

    def await_expected(self, as_reader_sees: Mapping[str, re.Pattern[str]] = NOTHING) -> None:
        """Until it has printed what is expected; *as_reader_sees* are the ports as the document and as we call them."""

        def seen() -> str:
            printed = self.printed
            for port, ours in as_reader_sees.items():
                printed = ours.sub(port, printed)
            return printed

        with self.news:
            arrived = self.news.wait_for(lambda: matches(self.expected, seen()), PATIENCE_S)
        assert arrived, f"$ {self.command}\nshould print\n{self.expected}\nand printed\n{seen()}"

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGINT)
        self.popen.wait(PATIENCE_S)


class Session:
    """One section being executed in `folder`."""

    def __init__(self, folder: Path, port: int, http_port: int, stack: ExitStack) -> None:
        self.folder = folder
        self.gateway_port = port
        self.http_port = http_port
        self.stack = stack
        self.relay: Relay | None = None
        self.gateway: Process | None = None
        self.says_more = False
        self.listeners: list[Process] = []
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = os.environ | {"PATH": path, "COLUMNS": "120", "NO_COLOR": "1"}
        self.ports_seen = {PORT: re.compile(str(port)), HTTP_PORT: re.compile(str(http_port))}

    def play(self, block: Block) -> None:
        """Every command in turn; a subscriber's is over when it is subscribed, and then come the publications."""
        if block.said("stops"):
            assert self.gateway is not None
            self.gateway.end()
        for command, expected in block.commands():
            if command.startswith("edgebroker run"):
                self.start_gateway(command, expected)
            elif command.startswith(LISTENERS) and not re.search(r" (-C|-W|--count|--wait)\b", command):
                self.listen(command, expected)
            else:
                self.run(command, expected)
        for message in block.said("publishes"):
            topic, _, payload = message.partition(" ")
            publish = f"edgebroker pub -t {shlex.quote(topic)} -m {shlex.quote(payload)}"
            self.run(publish, "")
            for trace in (listener for listener in self.listeners if listener.command.startswith(TRACE)):
                deadline = time.monotonic() + PATIENCE_S
                while not trace.printed and time.monotonic() < deadline:  # nothing tells when it watches
                    self.run(publish, "")

    def listen(self, command: str, expected: str) -> None:
        assert self.relay is not None, f"$ {command}\nneeds a gateway"
        listener = self.start(self.at_port(command), expected)
        self.listeners.append(listener)
        if command.startswith(TRACE):
            return
        assert self.relay.subacks.acquire(timeout=PATIENCE_S), f"$ {command}\nis not subscribed:\n{listener.printed}"

    def at_port(self, command: str) -> str:
        """*command* with the ports that stand for 1883 and 9883 here."""
        command = re.sub(rf"\b{HTTP_PORT}\b", str(self.http_port), command)
        if self.relay is None:
            return command
        if command.startswith(ASKING) and not re.search(r" (--http|--config)\b", command):
            command = f"{command} --http {self.http_port}"
        if command.startswith(CLIENTS) and not re.search(r" (-p|--port|--unix)\b", command):
            command = f"{command} -p {PORT}"
        return re.sub(rf"\b({PORT}|{TLS_PORT})\b", str(self.relay.port), command)

    def start_gateway(self, command: str, expected: str) -> None:
        port = self.gateway_port
        made = re.search(r" --config (\S+/gateway\.toml)$", command)
        if made:  # by `init`: a listener for this machine, one with TLS for devices, one for questions
            settings = self.folder / made[1]
            with socket.create_server(("127.0.0.1", 0)) as free:
                tls_port = free.getsockname()[1]
            ports = {PORT: self.gateway_port, TLS_PORT: tls_port, HTTP_PORT: self.http_port}
            text = settings.read_text()
            for documented, ours in ports.items():
                text = text.replace(f"\nport = {documented}\n", f"\nport = {ours}\n", 1)
            settings.write_text(text)
            self.ports_seen = {documented: re.compile(str(ours)) for documented, ours in ports.items()}
            port = tls_port
        else:
            command = f"{command} --port {self.gateway_port}"
        if not made and any(
            HTTP_PORT in text for text in (command, *(file.read_text() for file in self.folder.glob("*.toml")))
        ):
            command = f"{command} --http {self.http_port}"
        gateway = self.gateway = self.start(command, expected)
        self.await_port(gateway)
        self.relay = Relay(port)
        # Lines behind `...` may be printed as the section goes on.
        self.says_more = re.search(r"^\.\.\.\n(?!\.\.\.$)", expected, re.M) is not None
        if not self.says_more:
            gateway.await_expected(self.ports_seen)

    def await_port(self, gateway: Process) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and gateway.popen.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.gateway_port)):
                return
            time.sleep(0.02)
        pytest.fail(f"$ {gateway.command}\ndoes not listen:\n{gateway.printed}")

    def start(self, command: str, expected: str) -> Process:
        popen = subprocess.Popen(
            command,
            shell=True,
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        process = Process(command, expected, popen)
        self.stack.callback(process.end)
        threading.Thread(target=process.read, daemon=True).start()
        return process

    def run(self, command: str, expected: str) -> None:
        ended = subprocess.run(
            self.at_port(command),
            shell=True,
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
        )
        printed = ended.stdout
        assert matches(expected, printed), f"$ {command}\nshould print\n{expected}\nand printed\n{printed}"
        assert ended.returncode == 0 or expected, f"$ {command}\nfailed without a word (exit code {ended.returncode})"


@contextmanager
def session(folder: Path, *ports: int) -> Iterator[Session]:
    with ExitStack() as stack:
        yield Session(folder, *ports, stack)


SECTIONS = [section for path in DOCUMENTS for section in sections(path.name, path.read_text(encoding="utf-8"))]


@pytest.mark.live
@pytest.mark.parametrize("section", SECTIONS, ids=[section.name for section in SECTIONS])
def test_commands_print_what_the_document_says(
    section: Section, tmp_path: Path, free_port: int, another_free_port: int
) -> None:
    folder = tmp_path / "folder"  # with nothing beside it: `init` looks there for an authority
    folder.mkdir()
    if any(block.needs("mosquitto-clients") for block in section.blocks) and not shutil.which("mosquitto_sub"):
        pytest.skip("mosquitto_sub is not installed (Debian: mosquitto-clients)")
    for block in section.files:
        (folder / block.said("file")[0]).write_text(block.body, encoding="utf-8")
    with session(folder, free_port, another_free_port) as playing:
        executed = [block for block in section.blocks if not block.said("not executed")]
        if any(block.needs("gateway") for block in executed):
            playing.start_gateway(f"edgebroker run --http {HTTP_PORT}", "...")
        for block in executed:
            playing.play(block)
        for listener in playing.listeners:
            listener.await_expected()
        if playing.gateway is not None and playing.says_more:
            playing.gateway.await_expected(playing.ports_seen)


def test_only_harmless_blocks_are_left_out() -> None:
    left_out = [block for section in SECTIONS for block in section.blocks if block.said("not executed")]
    commands = [command for block in left_out for command, _ in block.commands()]
    assert [command for command in commands if not command.startswith(HARMLESS)] == []


TYPED = re.compile(
    r"^(?:\$ |(?:sudo |\.venv/bin/)?(?:edge(?:broker|devices|analytics)|mosquitto_[ps]ub|python3?|make|pip) \S)", re.M
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_command_that_is_not_executed_says_why(document: Path) -> None:
    blocks = [found for found in BLOCK.finditer(document.read_text(encoding="utf-8")) if found["tag"] != "console"]
    typed = [found for found in blocks if found["tag"].startswith("text") and TYPED.search(found["body"])]
    silent = [found["body"] for found in typed if "not executed:" not in found["comments"]]
    assert silent == [], "tag it `console`, so that it is executed, or say why not: <!-- not executed: why -->"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_no_command_hides_in_a_block_of_another_kind(document: Path) -> None:
    tags = {found["tag"].split(" ")[0] for found in BLOCK.finditer(document.read_text(encoding="utf-8"))}
    assert not tags & {"", "sh", "bash", "shell", "zsh"}, "tag commands `console`, so that they are executed"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_lead_somewhere(document: Path) -> None:
    text = BLOCK.sub("", document.read_text(encoding="utf-8"))
    targets = [target.partition("#")[0] for target in LINK.findall(text) if "://" not in target]
    assert [target for target in targets if target and not (document.parent / target).exists()] == []


def headings(document: Path) -> set[str]:
    """The anchors that GitHub makes of the headings of a page."""
    text = BLOCK.sub("", document.read_text(encoding="utf-8"))
    plain = (re.sub(r"[`*]", "", heading.lower()) for heading in re.findall(r"^#+ (.*)$", text, re.M))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_anchors_lead_to_a_heading(document: Path) -> None:
    text = BLOCK.sub("", document.read_text(encoding="utf-8"))
    split = (target.partition("#") for target in LINK.findall(text) if "://" not in target)
    found = [(document.parent / page if page else document, anchor) for page, _, anchor in split if anchor]
    assert [
        (page.name, anchor) for page, anchor in found if page.suffix == ".md" and anchor not in headings(page)
    ] == []


def test_every_decision_has_its_four_parts_in_twelve_lines() -> None:
    decisions = re.split(r"^### ", (ROOT / "docs/decisions.md").read_text(encoding="utf-8"), flags=re.M)[1:]
    assert decisions
    for decision in decisions:
        title, _, body = decision.partition("\n")
        body = re.split(r"^## ", body, flags=re.M)[0].strip()
        assert re.findall(r"^- \*\*(\w+)\.\*\*", body, re.M) == ["Context", "Options", "Choice", "Price"], title
        assert len(body.splitlines()) <= 12, title


def test_every_page_is_in_the_index() -> None:
    linked = set(LINK.findall((ROOT / "docs/README.md").read_text(encoding="utf-8")))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} <= linked


def test_the_readme_has_few_links() -> None:
    assert len(LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))) <= 8


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\n", "a\n", True),
        ("a\n", "a\nb\n", False),
        ("a ... c\n", "a b c\n", True),
        ("a ... c\n", "a b\nc\n", False),
        ("a\n...\n", "a\nb\nc\n", True),
        ("...\nc\n", "a\nb\nc\n", True),
        ("a.c\n", "abc\n", False),
        ("took ...\n", "took 3 ms\n", True),
        ("", "", True),
        ("", "oops\n", False),
    ],
)
def test_dots_stand_for_anything(expected: str, printed: str, same: bool) -> None:
    assert matches(expected, printed) is same


def glossary() -> list[tuple[str, str, str]]:
    """(term, meaning, source) of each row."""
    page = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    return re.findall(r"^\| (?!Term )([A-Za-z -]+) \| (.+) \| (.+) \|$", page, re.M)


def test_the_glossary_has_every_fate() -> None:
    assert {fate.name.lower() for fate in Fate} <= {term for term, *_ in glossary()}


def test_the_glossary_has_each_term_once_in_order_with_its_source() -> None:
    terms = [term.lower() for term, *_ in glossary()]
    assert len(terms) > 50
    assert terms == sorted(set(terms))
    page = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    assert len(terms) == len(re.findall(r"^\| (?!Term )", page, re.M)), "a row without its source"
