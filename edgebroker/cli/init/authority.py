"""A private certificate authority, made with the `openssl` program.

Python's standard library can use certificates but not make them. `openssl` is on every Debian and Raspberry Pi OS
(`ca-certificates` needs it), so a gateway need not install anything for a task that it does once.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgebroker.errors import EdgebrokerError

AUTHORITY_DAYS = 3_650  # nobody visits a site to replace a root sooner
REVOCATION_DAYS = 3_650  # an expired list refuses all clients, and nobody visits a site for a new one
CERTIFICATE_DAYS = 825  # the limit of phones and browsers for a private authority (Apple, HT210176)

REQUEST = """\
[req]
prompt = no
distinguished_name = name
[name]
CN = {name}
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = {alternatives}
[gateway]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = {alternatives}
[client]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
subjectAltName = {alternatives}
"""
REVOCATION = """\
[ca]
default_ca = all
[all]
database = {index}
crlnumber = {number}
default_md = sha256
default_crl_days = {days}
"""
PROBE_BYTES = 4_096
NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-sha256"]
"""P-256: a handshake takes 0.1 ms, with RSA of 2,048 bits 1 ms, and every device supports it."""


class OpensslFailed(EdgebrokerError):
    """`openssl` is missing or failed; the message has its error."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both in PEM."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs certificates for servers, clients and gateways."""

    pair: KeyPair

    @classmethod
    def make(cls, folder: Path, name: str, stem: str = "ca") -> Authority:
        """Makes an authority called *name*: `STEM.crt` and `STEM.key` in *folder*. Raises OpensslFailed."""
        pair = KeyPair(folder / f"{stem}.crt", folder / f"{stem}.key")
        with tempfile.TemporaryDirectory() as scratch:
            request = Path(scratch, "request")
            request.write_text(REQUEST.format(name=name, alternatives="DNS:unused"))
            _openssl(
                ["req", "-x509", "-config", str(request), "-extensions", "authority", *NEW_KEY],
                ["-days", str(AUTHORITY_DAYS), "-keyout", str(pair.key), "-out", str(pair.certificate)],
                outputs=[pair.key, pair.certificate],
            )
        pair.key.chmod(0o600)
        return cls(pair)

    def server(self, folder: Path, hosts: list[str], days: int = CERTIFICATE_DAYS, stem: str = "server") -> KeyPair:
        """Issues a certificate for a server with the names and addresses *hosts*. Raises OpensslFailed."""
        return self._issue(folder, stem, hosts[0], "server", [_alternative(host) for host in hosts], days)

    def client(self, folder: Path, name: str, days: int = CERTIFICATE_DAYS) -> KeyPair:
        """Issues a certificate for the client *name*: letters, digits, '.', '_' and '-'. Raises OpensslFailed."""
        return self._issue(folder, name, name, "client", [f"DNS:{name}"], days)

    def gateway(self, folder: Path, name: str, days: int = CERTIFICATE_DAYS) -> KeyPair:
        """Issues a certificate for the gateway *name*, which dials its peers and is dialled by them. Raises
        OpensslFailed.
        """
        return self._issue(folder, name, name, "gateway", [f"DNS:{name}"], days)

    def revoke(self, folder: Path, certificates: list[Path]) -> Path:
        """Writes a new `ca.crl` into *folder*, with *certificates* and all revoked before. Raises OpensslFailed.

        `revoked.txt` beside it has all revoked certificates, `revoked.number` the number of the list, as `openssl`
        requires.
        """
        index, number, revoked = (folder / name for name in ("revoked.txt", "revoked.number", "ca.crl"))
        index.touch(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".revoke-", dir=folder) as scratch:
            config, new_list = Path(scratch, "config"), Path(scratch, "crl")
            if not number.exists():
                number.write_text("01\n")
            config.write_text(REVOCATION.format(index=index.resolve(), number=number.resolve(), days=REVOCATION_DAYS))
            options = ["-config", str(config), "-cert", str(self.pair.certificate), "-keyfile", str(self.pair.key)]
            for certificate in certificates:
                _openssl(["ca", *options, "-revoke", str(certificate)])
            _openssl(["ca", *options, "-gencrl", "-out", str(new_list)])
            os.replace(new_list, revoked)
        return revoked

    def _issue(self, folder: Path, stem: str, name: str, kind: str, alternatives: list[str], days: int) -> KeyPair:
        pair = KeyPair(folder / f"{stem}.crt", folder / f"{stem}.key")
        with tempfile.TemporaryDirectory() as scratch:
            request, unsigned = Path(scratch, "request"), Path(scratch, "unsigned")
            # X.520 limits a common name to 64 characters; clients check a server's alternative names.
            request.write_text(REQUEST.format(name=name[:64], alternatives=",".join(alternatives)))
            _openssl(
                ["req", "-new", "-config", str(request), *NEW_KEY],
                ["-keyout", str(pair.key), "-out", str(unsigned)],
                outputs=[pair.key, unsigned],
            )
            _openssl(
                ["x509", "-req", "-in", str(unsigned), "-sha256", "-days", str(days)],
                ["-CA", str(self.pair.certificate), "-CAkey", str(self.pair.key)],
                ["-set_serial", str(secrets.randbits(127) | 1 << 126)],  # RFC 5280 section 4.1.2.2: at most 20 octets
                ["-extfile", str(request), "-extensions", kind, "-out", str(pair.certificate)],
                outputs=[pair.certificate],
            )
        pair.key.chmod(0o600)
        return pair


def _alternative(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"


def _is_complete(pem: Path) -> bool:
    return pem.is_file() and pem.read_bytes().endswith(b"-----\n")


def _openssl(*arguments: list[str], outputs: Sequence[Path] = ()) -> None:
    """Runs openssl. Raises OpensslFailed; OSError if the files *outputs* cannot be written."""
    program = shutil.which("openssl")
    if program is None:
        raise OpensslFailed("openssl is not installed, and it makes the certificates; on Debian: apt install openssl")
    command = [program, *(argument for group in arguments for argument in group)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if completed.returncode or not all(map(_is_complete, outputs)):
        try:
            for path in outputs:
                path.write_bytes(bytes(PROBE_BYTES))  # openssl does not report a full disk, or misleads about it
        finally:
            for path in outputs:
                path.unlink(missing_ok=True)
        messages = completed.stderr.strip().splitlines() or ["nothing"]
        raise OpensslFailed(f"openssl {command[1]} failed and said: {messages[-1]}")
