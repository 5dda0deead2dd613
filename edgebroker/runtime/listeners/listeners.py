"""All listeners of a gateway: opened together, changed at a reload, with a warning before a certificate expires."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from edgebridge.frontend.connection import Connection
from edgebridge.session.credentials import CredentialKind
from edgebridge.session.lifecycle import ConnectionState
from edgebroker.runtime.listeners.layer import ConnectionRefusals
from edgebroker.runtime.listeners.listener import Listener
from edgebroker.runtime.loop.reactor import Reactor
from edgebroker.runtime.operator_log import Level, OperatorLog
from edgebroker.runtime.reload import PreparedChange
from edgebroker.runtime.settings import Problem, Settings, SettingsRefused
from edgebroker.runtime.settings.sections import AccessSettings, ListenerSettings

if TYPE_CHECKING:
    from edgebroker.runtime.listeners.tls import ListenerTls

EXPIRY_DAYS = 21
"""Certificates that expire sooner are logged: time enough for an operator to react, even after a holiday."""


HOW_TO_LET_IN: Final = (
    "to let devices in: `edgebroker init` makes users, certificates and settings for this machine's address;",
    "or set access.password_file (`edgebroker passwd users NAME`), or listener.anonymous = true to admit all",
)


def has_way_in(listener: ListenerSettings, is_anonymous: bool, access: AccessSettings) -> bool:
    """Whether any client can connect at *listener*: without a name, or by credentials that *access* can check."""
    shows_certificate = listener.tls_client != "none" and access.certificate_user != "nobody"
    return bool(is_anonymous or access.password_file or access.token_keys or shows_certificate)


def no_way_in(where: str) -> str:
    """Returns the line that says so of the listeners *where*."""
    return f"nobody can connect at {where} yet: other machines have to say who they are, and there are no users"


class Listeners:
    """Opens, changes and closes all listeners of a gateway together."""

    def __init__(self, reactor: Reactor, operator_log: OperatorLog) -> None:
        self.refusals = ConnectionRefusals(operator_log)
        self._operator_log = operator_log
        self._reactor = reactor
        self._open: list[Listener] = []
        self._last_number = 0

    def __iter__(self) -> Iterator[Listener]:
        return iter(self._open)

    async def prepare(self, settings: Settings) -> PreparedChange:
        """Reads certificates and opens new listeners.

        Raises SettingsRefused, CannotListen; then nothing has changed.
        """
        wanted = settings.listeners
        loaded = await asyncio.to_thread(load_all, wanted)
        identities = ListenerSettings.identities
        present = dict(zip(identities([listener.settings for listener in self._open]), self._open, strict=True))
        kept = identities(wanted)
        leaving = [other for identity, other in present.items() if identity not in kept and other.port]
        opened: list[Listener] = []
        updated: list[tuple[Listener, ListenerSettings, ListenerTls | None]] = []
        try:
            for identity, new, tls in zip(kept, wanted, loaded, strict=True):
                listener = present.pop(identity, None)
                if listener is None:
                    listener = await self._open_one(new, tls, [other for other in leaving if other.port == new.port])
                    opened.append(listener)
                updated.append((listener, new, tls))
        except BaseException:
            _close(opened)
            raise

        def commit() -> Iterator[str]:
            yield from self._apply(updated, set(present.values()))
            self._warn_of_expiry(wanted, loaded)

        return PreparedChange(commit, lambda: _close(opened))

    def _apply(
        self, updated: Sequence[tuple[Listener, ListenerSettings, ListenerTls | None]], removed: set[Listener]
    ) -> Iterator[str]:
        """Switches to the listeners of *updated*, and disconnects the clients of the *removed* ones."""
        for listener in removed:
            listener.close()
            yield from self._disconnect(listener, "this listener is closed")
        for listener, settings, tls in updated:
            if tls is not None and listener.tls is not None and tls.digest != listener.tls.digest:
                yield f"listener {settings.label}: another certificate, valid until {tls.validity.end:%Y-%m-%d}"
            was_anonymous, previous_tls = listener.context.is_anonymous, listener.tls
            listener.update(settings, tls)
            if was_anonymous and not listener.context.is_anonymous:
                yield from self._disconnect(listener, "clients without user name come in here no more", _is_anonymous)
            if tls is not None and previous_tls is not None and tls.revoked not in (b"", previous_tls.revoked):
                why = "other certificates are revoked: show yours again"
                yield from self._disconnect(listener, why, _may_have_certificate)
        self._open = [listener for listener, _, _ in updated]

    def _disconnect(self, listener: Listener, why: str, selects: Callable[[Connection], bool] = bool) -> Iterator[str]:
        if count := self._reactor.disconnect_clients(listener.context.number, why, selects):
            yield f"listener {listener.label}: {count} clients were sent away"

    async def open(self, settings: Sequence[ListenerSettings]) -> None:
        """Opens all listeners, or none. Raises SettingsRefused, CannotListen."""
        loaded = load_all(settings)
        self._warn_of_expiry(settings, loaded)
        try:
            for listener_settings, tls in zip(settings, loaded, strict=True):
                self._open.append(await self._open_one(listener_settings, tls))
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        """Whether every listener accepts clients."""
        return bool(self._open) and all(listener.is_open for listener in self._open)

    def close(self) -> None:
        """Closes all listeners; connections stay."""
        _close(self._open)
        self._open = []

    def _warn_of_expiry(self, settings: Sequence[ListenerSettings], loaded: Sequence[ListenerTls | None]) -> None:
        for line in expiries(settings, loaded):
            self._operator_log.log(Level.WARNING, "certificate", line)

    async def _open_one(
        self, settings: ListenerSettings, tls: ListenerTls | None, leaving: Sequence[Listener] = ()
    ) -> Listener:
        self._last_number += 1
        listener = Listener(self._reactor, self._last_number, self.refusals)
        await listener.open(settings, tls, leaving)
        return listener


def _is_anonymous(connection: Connection) -> bool:
    """Whether the client has no credentials; true also before its CONNECT."""
    return connection.verdict.credential is CredentialKind.NOTHING


def _may_have_certificate(connection: Connection) -> bool:
    """Whether the client has presented a certificate or is in the handshake, which keeps the old revocation list to its
    end.
    """
    return connection.certificate is not None or connection.state is ConnectionState.AWAITING_CONNECT


def _close(listeners: Sequence[Listener]) -> None:
    for listener in listeners:
        listener.close()


def load_all(settings: Sequence[ListenerSettings]) -> list[ListenerTls | None]:
    """Returns the TLS of each listener. Raises SettingsRefused with all problems of their files."""
    problems: list[Problem] = []
    loaded: list[ListenerTls | None] = []
    for one in settings:
        try:
            loaded.append(load_one(one))
        except SettingsRefused as refused:
            problems += [replace(problem, file=f"listener {one.label}") for problem in refused.problems]
    if problems:
        raise SettingsRefused(problems)
    return loaded


def load_one(settings: ListenerSettings) -> ListenerTls | None:
    """Returns the TLS of a listener; None if it has none. Raises SettingsRefused with all problems of its files."""
    if not settings.is_tls:
        return None
    from edgebroker.runtime.listeners.tls import load_tls  # OpenSSL: 4 MiB, only with TLS

    return load_tls(settings)


def expiries(
    settings: Sequence[ListenerSettings], loaded: Sequence[ListenerTls | None], with_all: bool = False
) -> Iterator[str]:
    """Yields a line for each certificate that has expired, will soon, or is not valid yet; *with_all*: for all."""
    now = datetime.now(UTC)
    for one, tls in zip(settings, loaded, strict=True):
        if tls is None:
            continue
        end, left = f"{tls.validity.end:%Y-%m-%d}", tls.validity.days_left(now)
        if left < 0:
            yield f"listener {one.label}: the certificate {one.tls_certificate} expired on {end}"
        elif now < tls.validity.begin:
            begin = f"{tls.validity.begin:%Y-%m-%d %H:%M}"
            yield f"listener {one.label}: the certificate {one.tls_certificate} is not valid before {begin} UTC"
        elif left < EXPIRY_DAYS:
            yield f"listener {one.label}: the certificate {one.tls_certificate} expires on {end}, in {left} days"
        elif with_all:
            yield f"listener {one.label}: the certificate {one.tls_certificate} is valid until {end}"
