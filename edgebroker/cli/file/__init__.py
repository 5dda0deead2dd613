"""`edgebroker file`: publishes files to a gateway, and looks after them. docs/files.md explains it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import click

from edgebroker.cli import Refused
from edgebroker.cli.client_options import EXIT_REFUSED, ClientOptions, client_options, client_options_of, run, say
from edgebroker.cli.display import aligned, octets, span
from edgebroker.cli.file.source import PUBLIC, SECRET, FileSource, file_hash, load_key, make_keys
from edgebroker.cli.file.transfer import FileClient, Upload, file_client
from edgebroker.cli.parameters import DurationType, ExistingPath, examples
from edgebroker.errors import EdgebrokerError, TopicInvalid
from edgebroker.files.manifest import Attribute, FileManifest
from edgebroker.topics import parse_topic_name

TOPICS: Final = "files/"
"""Where manifests are retained unless somebody says otherwise: `files/NAME`."""
_PATH: Final = click.Path(path_type=Path, dir_okay=False)
_TOPIC: Final = click.option("-t", "--topic", help="The topic of the manifest.  [default: files/NAME]")
_JSON: Final = click.option("--json", "as_json", is_flag=True, help="For programs: JSON on standard output.")


@click.group("file", help="Publish files to a gateway, and look after them.")
def command() -> None:
    """The group; see its commands."""


@command.command("keygen", short_help="Make a key.", epilog=examples("edgebroker file keygen release.key"))
@click.argument("file", type=_PATH)
@_JSON
def keygen(file: Path, as_json: bool) -> None:
    """Make a new key: FILE with the secret part, which signs, and FILE.pub for devices, which verify with it."""
    public = file.with_name(f"{file.name}.pub")
    make_keys(file, public)
    text = f"{file}: the secret key, keep it away from gateways; {public}: for devices"
    click.echo(json.dumps({"secret": str(file), "public": str(public)}) if as_json else text)


@command.command(
    "publish",
    short_help="Publish FILE to a gateway.",
    epilog=examples("edgebroker file publish fw.bin --version 13 -a hw=v3 --sign release.key -h gateway-3"),
)
@client_options
@click.argument("file", type=ExistingPath(dir_okay=False))
@click.option("--version", required=True, type=click.IntRange(0), help="A number that grows from version to version.")
@click.option("--name", help="What the file is called.  [default: the name of FILE]")
@click.option("-a", "--attribute", "attributes", multiple=True, metavar="NAME=VALUE", help="For filters; repeatable.")
@click.option("--not-after", type=DurationType(), help="Nobody begins to install it later than this from now: 90d.")
@click.option("--sign", "key_file", type=_PATH, metavar="FILE", help="Sign the manifest with this secret key.")
@_TOPIC
@click.option("--manifest", "manifest_file", type=_PATH, help="Write the manifest into this file, too.")
@click.option(
    "--patience", type=DurationType(), default="10m", show_default=True, help="Without progress give up then."
)
@_JSON
def publish(**options: Any) -> None:
    """Publish FILE: the gateway gets the chunks that it does not have yet, and then retains the manifest.

    Devices subscribe to manifests by topic and content: hw = 'v3' AND version > 12. VALUE of an attribute is a number,
    true, false, or a text. A lost connection is made again; to publish the same file again sends nothing twice.
    """
    peer = client_options_of(options)
    name = options["name"] or options["file"].name
    attributes = dict(map(_attribute, options["attributes"]))
    topic = _topic(options["topic"], name)
    secret = None if options["key_file"] is None else load_key(options["key_file"], SECRET)
    now_s = int(time.time())
    not_after_s = None if options["not_after"] is None else now_s + options["not_after"]
    FileManifest(name, options["version"], 0, bytes(32), (), 0, attributes, not_after_s)  # before the file is read
    progress = ProgressLine("cutting", options["file"].stat().st_size)
    source = FileSource(options["file"], lambda done: progress.show(done))
    progress.end()
    manifest = source.manifest(name, options["version"], attributes, not_after_s)
    if secret is not None:
        manifest = manifest.signed(secret)
    payload = manifest.encode()
    if options["manifest_file"] is not None:
        options["manifest_file"].write_bytes(payload)
    run(_publish(peer, source, topic, manifest, options["not_after"], options["patience"], options["as_json"]))


async def _publish(
    peer: ClientOptions,
    source: FileSource,
    topic: str,
    manifest: FileManifest,
    expiry_s: int | None,
    patience_s: int,
    as_json: bool,
) -> int:
    began = time.monotonic()
    progress = ProgressLine("sending")
    upload = Upload(source, progress.show)
    await upload.run(peer, patience_s, say)
    progress.end()
    async with file_client(peer) as files:
        await files.publish(topic, manifest.encode(), expiry_s)
    seconds = time.monotonic() - began
    if as_json:
        figures = {
            "file": manifest.name,
            "version": manifest.version,
            "topic": topic,
            "bytes": manifest.size,
            "chunks": len(source.pieces),
            "sent_chunks": upload.sent_chunks,
            "sent_bytes": upload.sent_bytes,
            "seconds": round(seconds, 3),
        }
        click.echo(json.dumps(figures))
    else:
        click.echo(
            f"{topic}: {manifest.name} version {manifest.version}, {octets(manifest.size)} in {len(source.pieces)} "
            f"chunks, of which {upload.sent_chunks} ({octets(upload.sent_bytes)}) were sent"
        )
    return 0


@command.command("list", short_help="List the files that are published.", epilog=examples("edgebroker file list"))
@client_options
@click.option("-t", "--topic", default=TOPICS + "#", show_default=True, help="A topic filter, with $filter if wanted.")
@_JSON
def list_(**options: Any) -> None:
    """List the manifests that are retained. Exit code 1 if there is none."""
    run(_list(client_options_of(options), options["topic"], options["as_json"]))


async def _list(peer: ClientOptions, topic_filter: str, as_json: bool) -> int:
    async with file_client(peer) as files:
        found = sorted([pair async for pair in files.manifests(topic_filter)], key=lambda pair: pair[0])
    if as_json:
        click.echo(json.dumps([{"topic": topic, **_described(manifest)} for topic, manifest in found]))
    elif found:
        rows = [["TOPIC", "FILE", "VERSION", "SIZE", "SIGNED", "ATTRIBUTES"]]
        for topic, manifest in found:
            if manifest is None:
                rows.append([topic, "(no manifest)", "", "", "", ""])
                continue
            texts = [f"{name}={json.dumps(value)}" for name, value in manifest.attributes.items()]
            signed = "yes" if manifest.signature else "no"
            rows.append([topic, manifest.name, str(manifest.version), octets(manifest.size), signed, " ".join(texts)])
        click.echo("\n".join(aligned(rows)))
    return 0 if any(manifest for _, manifest in found) else EXIT_REFUSED


@command.command(
    "status", short_help="Show which chunks of a file a gateway has.", epilog=examples("edgebroker file status fw.bin")
)
@client_options
@click.argument("name", required=False)
@_TOPIC
@_JSON
def status(**options: Any) -> None:
    """Show which chunks of the file NAME the gateway has; without NAME, how full its store is.

    Exit code 1 if a chunk is not there, or no such file is published.
    """
    peer = client_options_of(options)
    has_name = options["name"] is not None or options["topic"] is not None
    topic = _topic(options["topic"], options["name"] or "") if has_name else None
    run(_status(peer, topic, options["as_json"]))


async def _status(peer: ClientOptions, topic: str | None, as_json: bool) -> int:
    async with file_client(peer) as files:
        store = await files.figures()
        if topic is None:
            text = f"{store['chunks']} chunks, {octets(store['bytes'])} of {octets(store['bytes_max'])}"
            click.echo(json.dumps(store) if as_json else text)
            return 0
        manifest = await _manifest(files, topic)
        tables = [entry.sha256 for entry in manifest.chunks] if manifest.depth else []
        missing_tables = await files.missing(tables) if tables else []
        entries = [] if missing_tables else await files.entries(manifest)
        sizes = {entry.sha256: entry.size for entry in entries}
        missing = await files.missing(list(sizes)) if sizes else []
        here = sum(sizes.values()) - sum(sizes[name] for name in missing)
    figures = {
        **_described(manifest),
        "topic": topic,
        "chunks": len(sizes),
        "chunks_missing": len(missing) + len(missing_tables),
        "bytes_here": here,
        "store": store,
    }
    if as_json:
        click.echo(json.dumps(figures))
    else:
        click.echo(f"{topic}: {manifest.name} version {manifest.version}, {octets(manifest.size)}")
        if missing_tables:
            click.echo(f"{len(missing_tables)} of {len(tables)} tables of chunks are not here")
        click.echo(f"here: {len(sizes) - len(missing)} of {len(sizes)} chunks, {octets(here)}")
    return EXIT_REFUSED if missing or missing_tables else 0


@command.command("remove", short_help="Withdraw a file.", epilog=examples("edgebroker file remove fw.bin"))
@client_options
@click.argument("name", required=False)
@_TOPIC
@_JSON
def remove(**options: Any) -> None:
    """Clear the manifest of the file NAME: no device hears of it any more.

    Its chunks go when others need their room. Exit code 1 if no such file is published.
    """
    peer = client_options_of(options)
    if options["name"] is None and options["topic"] is None:
        raise click.UsageError("give NAME or -t TOPIC")
    run(_remove(peer, _topic(options["topic"], options["name"] or ""), options["as_json"]))


async def _remove(peer: ClientOptions, topic: str, as_json: bool) -> int:
    async with file_client(peer) as files:
        manifest = await _manifest(files, topic)
        await files.publish(topic, b"")
    text = f"{topic}: {manifest.name} version {manifest.version} is withdrawn"
    click.echo(json.dumps({"topic": topic, **_described(manifest)}) if as_json else text)
    return 0


@command.command(
    "verify",
    short_help="Is FILE what a manifest says?",
    epilog=examples("edgebroker file verify got.bin -t files/fw.bin --signed-by release.key.pub"),
)
@client_options
@click.argument("file", type=ExistingPath(dir_okay=False))
@_TOPIC
@click.option("--manifest", "manifest_file", type=_PATH, help="Read the manifest from this file; no gateway is asked.")
@click.option("--signed-by", "key_file", type=_PATH, metavar="FILE", help="The public key that must have signed it.")
@_JSON
def verify(**options: Any) -> None:
    """Is FILE what the manifest says, signed with the key, and still to be installed?

    Exit code 0 if it is, 1 if not. Without --signed-by the signature is not looked at.
    """
    peer = client_options_of(options)
    public = None if options["key_file"] is None else load_key(options["key_file"], PUBLIC)
    if options["manifest_file"] is not None:
        try:
            manifest = FileManifest.decode(options["manifest_file"].read_bytes())
        except EdgebrokerError as error:
            raise Refused(f"{options['manifest_file']}: {error}") from error
        sys.exit(_verify(options["file"], manifest, public, options["as_json"]))

    async def fetch_and_verify() -> int:
        async with file_client(peer) as files:
            manifest = await _manifest(files, _topic(options["topic"], options["file"].name))
        return _verify(options["file"], manifest, public, options["as_json"])

    run(fetch_and_verify())


def _verify(file: Path, manifest: FileManifest, public: bytes | None, as_json: bool) -> int:
    size, digest = file_hash(file)
    problems = []
    if (size, digest) != (manifest.size, manifest.sha256):
        problems.append("its bytes are not those of the manifest")
    if public is not None and not manifest.is_signed_by(public):
        problems.append("the manifest is not signed with the key")
    if manifest.not_after_s is not None and manifest.not_after_s < time.time():
        problems.append(f"it should not be installed any more, since {span(time.time() - manifest.not_after_s)}")
    if as_json:
        click.echo(json.dumps({"ok": not problems, "problems": problems, **_described(manifest)}))
    elif problems:
        click.echo(f"{file}: not {manifest.name} version {manifest.version}: {'; '.join(problems)}")
    else:
        signed = "signature not checked" if public is None else "signed with the key"
        click.echo(f"{file}: {manifest.name} version {manifest.version}, {octets(size)}, {signed}")
    return EXIT_REFUSED if problems else 0


# -- what the commands share ------------------------------------------------------------------------------------------


class NotPublished(EdgebrokerError):
    """No manifest is retained under a topic."""


async def _manifest(files: FileClient, topic: str) -> FileManifest:
    """Raises NotPublished, ManifestInvalid."""
    async for found, manifest in files.manifests(topic):
        if found == topic and manifest is not None:
            return manifest
    raise NotPublished(f"no file is published under {topic}")


def _described(manifest: FileManifest | None) -> dict[str, Any]:
    if manifest is None:
        return {"file": None}
    return {
        "file": manifest.name,
        "version": manifest.version,
        "size": manifest.size,
        "sha256": manifest.sha256.hex(),
        "is_signed": bool(manifest.signature),
        "not_after": manifest.not_after_s,
        "attributes": dict(manifest.attributes),
    }


def _topic(topic: str | None, name: str) -> str:
    try:
        return parse_topic_name(TOPICS + name if topic is None else topic)
    except TopicInvalid as error:
        raise click.UsageError(f"-t {topic!r}: {error}") from None


def _attribute(text: str) -> tuple[str, Attribute]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"-a {text!r}: write NAME=VALUE")
    try:
        read = json.loads(value)
    except ValueError:
        return name, value
    return name, read if type(read) in (bool, int, float, str) else value


class ProgressLine:
    """One line on a terminal: how much is done, how fast, and for how much longer. Nothing elsewhere."""

    def __init__(self, verb: str, total: int = 0) -> None:
        self._verb = verb
        self._total = total
        self._began = time.monotonic()
        self._first: int | None = None
        self._shown_at = 0.0
        self._width = 0
        self._is_shown = sys.stderr.isatty()

    def show(self, done: int, total: int | None = None) -> None:
        """Show that *done* bytes of *total* are done, at most four times a second."""
        total = self._total if total is None else total
        now = time.monotonic()
        if self._first is None:
            self._first, self._began = done, now
        if not self._is_shown or now < self._shown_at + 0.25:
            return
        self._shown_at = now
        text = progress_text(self._verb, done, total, done - self._first, now - self._began)
        click.echo("\r" + text.ljust(self._width), nl=False, err=True)
        self._width = len(text)

    def end(self) -> None:
        """Clear the line."""
        if self._width:
            click.echo("\r" + " " * self._width + "\r", nl=False, err=True)


def progress_text(verb: str, done: int, total: int, moved: int, seconds: float) -> str:
    """Returns what a progress line says: *moved* of the *done* bytes took *seconds*."""
    share = f"{100 * done // total} %" if total else "?"
    rate = moved / seconds if seconds > 0 else 0.0
    left = f", {span((total - done) / rate)} left" if rate > 0 and total >= done else ""
    return f"{verb}: {share} of {octets(total)}, {octets(rate)}/s{left}"
