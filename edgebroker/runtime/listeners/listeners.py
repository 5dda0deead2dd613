"""All listeners of a gateway: opened together, changed at a reload, with a warning before a certificate expires."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from edgebridge.frontend.connection import Connection
from edgebridge.session.credentials import CredentialKind
from edgebridge.session.lifecycle import ConnectionState
from edgebroker.runtime.listeners.layer import ConnectionRefusals
from edgebroker.runtime.listeners.listener import Listener
from edgebroker.runtime.loop.reactor import Reactor
from edgebroker.runtime.operator_log import Level, OperatorLog
from edgebroker.runtime.reload import PreparedChange
from edgebroker.runtime.settings import Problem, Settings, SettingsRefused
from edgebroker.runtime.settings.sections import ListenerSettings

if TYPE_CHECKING:
    from edgebroker.runtime.listeners.tls import ListenerTls

EXPIRY_DAYS = 21
"""A certificate that expires sooner is told: time for somebody to read it, also after a holiday."""


class Listeners:
    """Opens and closes them together."""

    def __init__(self, reactor: Reactor, log: OperatorLog) -> None:
        self.refusals = ConnectionRefusals(log)
        self._log = log
        self._reactor = reactor
        self._open: list[Listener] = []
        self._last_number = 0

    def __iter__(self) -> Iterator[Listener]:
        return iter(self._open)

    async def prepare(self, settings: Settings) -> PreparedChange:
        """Read certificates and open what is new. Raises SettingsRefused, CannotListen; then nothing has changed."""
        wanted = settings.listeners
        loaded = load_all(wanted)
        identities = ListenerSettings.identities
        known = dict(zip(identities([listener.settings for listener in self._open]), self._open, strict=True))
        leaving = [one for identity, one in known.items() if identity not in identities(wanted) and one.port]
        new: list[Listener] = []
        then: list[tuple[Listener, ListenerSettings, ListenerTls | None]] = []
        try:
            for identity, one, tls in zip(identities(wanted), wanted, loaded, strict=True):
                listener = known.pop(identity, None)
                if listener is None:
                    listener = await self._opened(one, tls, [each for each in leaving if each.port == one.port])
                    new.append(listener)
                then.append((listener, one, tls))
        except BaseException:
            _close(new)
            raise

        def commit() -> Iterator[str]:
            yield from self._change(then, set(known.values()))
            self._tell_expiries(wanted, loaded)

        return PreparedChange(commit, lambda: _close(new))

    def _change(
        self, then: Sequence[tuple[Listener, ListenerSettings, ListenerTls | None]], gone: set[Listener]
    ) -> Iterator[str]:
        """Let the listeners be those of *then*, and send away who came in by one that is *gone*."""
        for listener in gone:
            listener.close()
            yield from self._send_away(listener, "this listener is closed")
        for listener, settings, tls in then:
            if tls is not None and listener.tls is not None and tls.digest != listener.tls.digest:
                yield f"listener {settings.label}: another certificate, valid until {tls.validity.end:%Y-%m-%d}"
            had_strangers, had = listener.context.is_anonymous, listener.tls
            listener.update(settings, tls)
            if had_strangers and not listener.context.is_anonymous:
                yield from self._send_away(listener, "clients without user name come in here no more", _is_stranger)
            if tls is not None and had is not None and tls.revoked not in (b"", had.revoked):
                why = "other certificates are revoked: show yours again"
                yield from self._send_away(listener, why, _may_be_certified)
        self._open = [listener for listener, _, _ in then]

    def _send_away(self, listener: Listener, why: str, whom: Callable[[Connection], bool] = bool) -> Iterator[str]:
        if count := self._reactor.disconnect_clients(listener.context.number, why, whom):
            yield f"listener {listener.label}: {count} clients were sent away"

    async def open(self, settings: Sequence[ListenerSettings]) -> None:
        """Begin to accept everywhere, or nowhere. Raises SettingsRefused, CannotListen."""
        loaded = load_all(settings)
        self._tell_expiries(settings, loaded)
        try:
            for one, tls in zip(settings, loaded, strict=True):
                self._open.append(await self._opened(one, tls))
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        """Whether every listener accepts clients."""
        return bool(self._open) and all(listener.is_open for listener in self._open)

    def close(self) -> None:
        """Accept nobody any more."""
        _close(self._open)
        self._open = []

    def _tell_expiries(self, settings: Sequence[ListenerSettings], loaded: Sequence[ListenerTls | None]) -> None:
        for line in expiries(settings, loaded):
            self._log.log(Level.WARNING, "certificate", line)

    async def _opened(
        self, settings: ListenerSettings, tls: ListenerTls | None, leaving: Sequence[Listener] = ()
    ) -> Listener:
        self._last_number += 1
        listener = Listener(self._reactor, self._last_number, self.refusals)
        await listener.open(settings, tls, leaving)
        return listener


def _is_stranger(connection: Connection) -> bool:
    """Whether nothing says who the client is; also of one that has not said CONNECT."""
    return connection.verdict.credential is CredentialKind.NOTHING


def _may_be_certified(connection: Connection) -> bool:
    """Whether it has shown a certificate, or may do so yet: a handshake ends with the list with which it began."""
    return connection.certificate is not None or connection.state is ConnectionState.AWAITING_CONNECT


def _close(listeners: Sequence[Listener]) -> None:
    for listener in listeners:
        listener.close()


def load_all(settings: Sequence[ListenerSettings]) -> list[ListenerTls | None]:
    """The TLS of every listener. Raises SettingsRefused with all that is wrong with their files."""
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
    """The TLS of a listener. Raises SettingsRefused with all that is wrong with its files."""
    if not settings.is_tls:
        return None
    from edgebroker.runtime.listeners.tls import load_tls  # OpenSSL: 4 MiB that only TLS costs

    return load_tls(settings)


def expiries(
    settings: Sequence[ListenerSettings], loaded: Sequence[ListenerTls | None], with_all: bool = False
) -> Iterator[str]:
    """A line for every certificate that has expired or soon will, or is not valid yet; or for all of them."""
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
