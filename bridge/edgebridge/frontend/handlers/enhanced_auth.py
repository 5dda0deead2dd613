"""Enhanced authentication (MQTT 5.0 section 4.12): the client proves its identity in several steps of AUTH.

    CONNECT (method, first message) > AUTH 0x18 (challenge) > AUTH 0x18 (proof) > CONNACK (the server's proof)

The same exchange with AUTH 0x19 authenticates a connected client again, while everything else goes on. The one method
is SCRAM-SHA-256 (RFC 7677).
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.handlers.authentication import Authenticator
from edgebridge.frontend.handlers.connect import ConnectHandler
from edgebridge.session.credentials import SCRAM_METHOD, WRONG_CREDENTIALS, AuthenticationResult, CredentialKind
from edgebridge.session.lifecycle import ConnectionState
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.errors import ProtocolViolation
from edgebridge.wire.packets import Auth, Connect
from edgebridge.wire.properties import Properties, Property, text_property
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import Instant

if TYPE_CHECKING:
    from edgebridge.session.scram import ScramExchange, ScramFailed

NONCE_BYTES: Final = 18  # 144 bits, in 24 characters


class EnhancedAuth:
    """The exchanges that are going on, and who may begin another."""

    def __init__(self, connect_handler: ConnectHandler, authenticator: Authenticator, secret: bytes) -> None:
        """*secret*: 32 random bytes of this process. Without it there is no method at all."""
        self._connect_handler = connect_handler
        self._authenticator = authenticator
        self._secret = secret
        self._nonces = 0
        self._exchanges: dict[int, tuple[ScramExchange, Connect | None]] = {}
        """By connection, with the CONNECT that waits for it; without one, of a client that is connected."""

    def on_connect(self, connection: Connection, connect: Connect, now: Instant) -> None:
        """A CONNECT without a method is not our affair; one with a method we do not have is refused [MQTT-4.12.0-1]."""
        method = text_property(connect.properties, Property.AUTHENTICATION_METHOD)
        if Property.AUTHENTICATION_METHOD not in connect.properties:
            self._connect_handler.on_connect(connection, connect, now)
        elif self._connect_handler.admits(connection, connect):
            if method != SCRAM_METHOD or not self._is_available:
                known = f"only {SCRAM_METHOD}" if self._is_available else "no method"
                why = f"the authentication method {method[:40]!r} is not supported, {known}"
                self._connect_handler.refuse(
                    connection, ReasonCode.BAD_AUTHENTICATION_METHOD, why, client=connect.client_id
                )
            else:
                self._challenge(connection, connect, connect.properties, now)

    def on_auth(self, connection: Connection, auth: Auth, now: Instant) -> None:
        """A step of the client. Raises ProtocolViolation for one it may not take now."""
        is_connected = connection.state is ConnectionState.CONNECTED
        if is_connected and connection.verdict.credential is not CredentialKind.SCRAM:
            raise ProtocolViolation("AUTH, but CONNECT had no authentication method", v5="MQTT-4.12.0-7")
        if text_property(auth.properties, Property.AUTHENTICATION_METHOD) != SCRAM_METHOD:
            clause = "MQTT-4.12.1-1" if is_connected else "MQTT-4.12.0-5"
            raise ProtocolViolation("AUTH has the authentication method of CONNECT", v5=clause)
        if is_connected and auth.reason == ReasonCode.RE_AUTHENTICATE:
            self._challenge(connection, None, auth.properties, now)
        elif auth.reason == ReasonCode.CONTINUE_AUTHENTICATION and connection.number in self._exchanges:
            self._verify_proof(connection, auth.properties, now)
        else:
            raise ProtocolViolation(f"AUTH with reason 0x{auth.reason:02X} is not expected now", v5="MQTT-4.12.0-3")

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        self._exchanges.pop(connection.number, None)

    @property
    def _is_available(self) -> bool:
        return bool(self._secret) and self._authenticator.access.passwords is not None

    def _challenge(self, connection: Connection, connect: Connect | None, properties: Properties, now: Instant) -> None:
        from edgebridge.session.scram import ScramExchange, ScramFailed

        access = self._authenticator.access
        exchange = ScramExchange(self._nonce(), access.scram_secret, access.scram_decoy or self._secret)
        self._exchanges[connection.number] = exchange, connect
        try:
            challenge = exchange.challenge(_data(properties))
        except ScramFailed as error:
            self._failed(connection, error, now)
            return
        if connect is not None:
            connection.state = ConnectionState.CHALLENGED
        self._answer(connection, ReasonCode.CONTINUE_AUTHENTICATION, challenge)

    def _verify_proof(self, connection: Connection, properties: Properties, now: Instant) -> None:
        from edgebridge.session.scram import ScramFailed

        exchange, connect = self._exchanges[connection.number]
        try:
            proof = exchange.prove(_data(properties))
            _check_identity(exchange.user, connection, connect, self._certificate_user(connection))
        except ScramFailed as error:
            self._failed(connection, error, now)
            return
        del self._exchanges[connection.number]
        verdict = AuthenticationResult(user=exchange.user, credential=CredentialKind.SCRAM, mark=str(exchange.secret))
        if connect is None:
            connection.verdict = verdict
            self._answer(connection, ReasonCode.SUCCESS, proof)
        else:
            connection.state = ConnectionState.AWAITING_CONNECT
            self._connect_handler.complete_connect(
                connection, connect, verdict, now, _properties(proof)
            )  # [MQTT-4.12.0-5]

    def _failed(self, connection: Connection, error: ScramFailed, now: Instant) -> None:
        """Refuse the client [MQTT-4.12.0-4], or end its connection [MQTT-4.12.1-2]."""
        from edgebridge.session.scram import ScramProofWrong

        connect = self._exchanges.pop(connection.number)[1]
        verdict = (
            WRONG_CREDENTIALS
            if isinstance(error, ScramProofWrong)
            else AuthenticationResult(ReasonCode.NOT_AUTHORIZED, str(error))
        )
        if connect is None:
            self._connect_handler.disconnect(connection, ReasonCode.NOT_AUTHORIZED, verdict.why)
        else:
            connection.state = ConnectionState.AWAITING_CONNECT
            self._connect_handler.complete_connect(connection, connect, verdict, now)

    def _answer(self, connection: Connection, reason: ReasonCode, data: bytes) -> None:
        packet = encode_packet(Auth(reason, _properties(data)), connection.dialect)
        if connection.fits(packet):
            connection.send(packet)
        else:
            connection.close()

    def _certificate_user(self, connection: Connection) -> str:
        return self._authenticator.certificate_user(connection)

    def _nonce(self) -> str:
        """Never the same twice, and known to nobody who does not know the secret."""
        import hmac

        self._nonces += 1
        mixed = hmac.digest(self._secret, b"nonce %d" % self._nonces, "sha256")
        return b64encode(mixed[:NONCE_BYTES]).decode()


def _check_identity(user: str, connection: Connection, connect: Connect | None, certified: str) -> None:
    """Raises ScramWrong if the client is said to be somebody else in another place."""
    from edgebridge.session.scram import ScramProofWrong

    said = connection.verdict.user if connect is None else connect.username
    if (said and said != user) or (certified and certified != user):
        raise ScramProofWrong("wrong user name or password")


def _data(properties: Properties) -> bytes:
    data = properties.get(Property.AUTHENTICATION_DATA, b"")
    assert isinstance(data, bytes)
    return data


def _properties(data: bytes) -> Properties:
    return {Property.AUTHENTICATION_METHOD: SCRAM_METHOD, Property.AUTHENTICATION_DATA: data}
