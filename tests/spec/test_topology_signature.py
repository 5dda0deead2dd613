"""Signed topology files: Ed25519 as in RFC 8032, the last line of the file, and the command that signs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgebroker.cli import main
from edgebroker.ed25519 import public_key, sign, verify
from edgebroker.runtime.peers.membership import load_membership, prepare_change
from edgebroker.runtime.settings import Settings, SettingsRefused
from edgebroker.runtime.topology_signature import (
    PUBLIC,
    SECRET,
    SignatureInvalid,
    load_key,
    sign_topology,
    signed_version,
    verify_topology,
)

from ..support.topologies import TWO_GATEWAYS

TEXT = TWO_GATEWAYS.format(7884, 7885)
KEY = bytes(range(32))
RFC_8032 = [  # section 7.1: secret key, public key, message, signature
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
        "655141438e7a100b",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28d"
        "c027beceea1ec40a",
    ),
]


@pytest.mark.parametrize(("secret", "public", "message", "signature"), RFC_8032)
def test_the_vectors_of_the_rfc(secret: str, public: str, message: str, signature: str) -> None:
    key, said, found = bytes.fromhex(secret), bytes.fromhex(message), bytes.fromhex(signature)
    assert public_key(key).hex() == public
    assert sign(key, said).hex() == signature
    assert verify(bytes.fromhex(public), said, found)
    assert not verify(bytes.fromhex(public), said + b"x", found)
    assert not verify(public_key(bytes(32)), said, found)
    for at in range(0, 64, 7):
        changed = bytearray(found)
        changed[at] ^= 1
        assert not verify(bytes.fromhex(public), said, bytes(changed))


def test_a_signature_with_another_scalar_of_the_same_rest_is_none() -> None:
    """Section 5.1.7: S is below L, or anybody could make a second signature of a signed message."""
    order = 2**252 + 27742317777372353535851937790883648493
    signature = sign(KEY, b"x")
    scalar = int.from_bytes(signature[32:], "little") + order
    assert not verify(public_key(KEY), b"x", signature[:32] + scalar.to_bytes(32, "little"))


def test_a_file_is_signed_in_its_last_line_and_signed_again_as_a_newer_one() -> None:
    signed = sign_topology(TEXT, KEY, 1_800_000_000)
    assert signed.startswith(TEXT)
    assert signed.splitlines()[-1].startswith("# signed 1800000000 ")
    assert verify_topology(signed, public_key(KEY)) == signed_version(signed) == 1_800_000_000
    again = sign_topology(signed, KEY, 1_700_000_000)  # by a clock that is behind
    assert verify_topology(again, public_key(KEY)) == 1_800_000_001
    assert again.count("# signed") == 1
    assert signed_version(TEXT) == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text.replace("7885", "7886"), "was changed after"),
        (lambda text: text.replace("# signed 18", "# signed 19"), "was changed after"),
        (lambda text: text + "[[site]]\n", "is not signed"),
        (lambda text: text.rpartition("# signed")[0], "is not signed"),
        (lambda text: text.replace("# signed 1", "# signed x"), "is not signed"),
    ],
)
def test_what_was_changed_is_not_signed(change: object, reason: str) -> None:
    assert callable(change)
    with pytest.raises(SignatureInvalid, match=reason):
        verify_topology(change(sign_topology(TEXT, KEY, 1_800_000_000)), public_key(KEY))


def signed_settings(folder: Path) -> Settings:
    """Of gw-here, whose topology has to be signed; nothing is signed yet."""
    (folder / "plant.toml").write_text(TEXT)
    (folder / "g.toml").write_text(
        '[node]\nname = "gw-here"\n[listener]\nport = 0\n[data]\ndir = "data"\n'
        '[overlay]\ntopology = "plant.toml"\ntopology_key = "topology.key.pub"\n'
    )
    (folder / "data").mkdir(exist_ok=True)
    return Settings.load(folder / "g.toml")


def command(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(main, [str(one) for one in arguments])
    return done.exit_code, done.output


def test_the_command_makes_a_key_and_signs(tmp_path: Path) -> None:
    settings, file, key = signed_settings(tmp_path), tmp_path / "plant.toml", tmp_path / "topology.key"
    code, said = command("topology", "sign", file, "--key", key, "--new-key")
    assert code == 0, said
    assert f"{key}: the secret key; {key}.pub: for all gateways" in said
    assert key.stat().st_mode & 0o777 == 0o600
    assert verify_topology(file.read_text(), public_key(load_key(key, SECRET)))
    assert load_key(tmp_path / "topology.key.pub", PUBLIC) == public_key(load_key(key, SECRET))
    assert command("topology", "check", file)[1].splitlines()[1].startswith("signed 20")
    assert command("check", tmp_path / "g.toml")[0] == 0
    assert load_membership(settings).version == signed_version(file.read_text())

    assert command("topology", "sign", file, "--key", key, "--new-key")[0] == 2, "it would replace the key"
    file.write_text(file.read_text().replace("7884", "7999"))
    code, said = command("check", tmp_path / "g.toml")
    assert code == 2
    assert f"{file}: is signed with another key, or was changed after it was signed; sign it: " in said
    code, said = command("topology", "sign", file, "--key", key, "--json")
    assert (code, json.loads(said)) == (
        0,
        {"file": str(file), "version": signed_version(file.read_text()), "key": str(key)},
    )
    assert command("check", tmp_path / "g.toml")[0] == 0


def test_keys_that_are_none_are_refused(tmp_path: Path) -> None:
    settings = signed_settings(tmp_path)
    with pytest.raises(SettingsRefused, match=r"overlay.topology_key: cannot be read: No such file"):
        load_membership(settings)
    (tmp_path / "topology.key.pub").write_text(f"{SECRET}{KEY.hex()}\n")
    with pytest.raises(SettingsRefused, match=r"overlay.topology_key: is no public key of"):
        load_membership(settings)
    assert "is no secret key" in command("topology", "sign", tmp_path / "plant.toml", "--key", tmp_path / "g.toml")[1]
    (tmp_path / "topology.key.pub").write_text(f"{PUBLIC}{public_key(KEY).hex()}\n")
    with pytest.raises(SettingsRefused, match=r"plant.toml: is not signed; sign it"):
        load_membership(settings)


def test_of_the_files_with_a_signature_the_newest_holds(tmp_path: Path) -> None:
    settings = signed_settings(tmp_path)
    (tmp_path / "topology.key.pub").write_text(f"{PUBLIC}{public_key(KEY).hex()}\n")
    (tmp_path / "plant.toml").write_text(sign_topology(TEXT, KEY, 5_000))
    adopted = tmp_path / "data" / "topology.toml"
    for text, version in (
        (sign_topology(TEXT, KEY, 6_000), 6_000),
        (sign_topology(TEXT, KEY, 4_000), 5_000),
        (sign_topology(TEXT, bytes(32), 7_000), 5_000),  # by somebody else
        ("damaged", 5_000),
    ):
        adopted.write_text(text)
        assert load_membership(settings).version == version
    assert load_membership(settings, sign_topology(TEXT, KEY, 9_000)).version == 9_000
    assert load_membership(settings, sign_topology(TEXT, bytes(32), 9_000)).version == 5_000


def test_a_reload_does_not_go_back_to_an_older_file(tmp_path: Path) -> None:
    settings = signed_settings(tmp_path)
    (tmp_path / "topology.key.pub").write_text(f"{PUBLIC}{public_key(KEY).hex()}\n")
    (tmp_path / "plant.toml").write_text(sign_topology(TEXT, KEY, 5_000))
    before = load_membership(settings)
    handed_on = prepare_change(before, settings, sign_topology(TEXT.replace("7885", "7999"), KEY, 6_000))
    assert handed_on.lines == ("topology: gateway gw-there has address 127.0.0.1:7999, had 127.0.0.1:7885",)
    assert handed_on.is_new_run, "peers are told of the newer file when they meet again"
    again = prepare_change(handed_on.membership, settings)
    assert again.membership.version == 6_000
    assert again.lines == (
        f"topology: {tmp_path / 'plant.toml'} is older than the signed topology that holds, and is not used",
    )
    assert not again.is_new_run
