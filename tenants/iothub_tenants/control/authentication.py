"""Authenticates a CONNECT: by the hub's own credential check or by a plug-in, in one step or (5.0) in several (§4.12).

Knows no session. The answer is an `Authenticated`, or ConnectRefusedError.
"""

from __future__ import annotations

from dataclasses import replace

from twisted.internet.defer import Deferred

from iothub.base.errors import IotHubError
from iothub.base.reasons import Reason
from iothub.engine.state import Connection
from iothub.hooks import Attempt, Challenge, Proof, Step
from iothub.mqtt.constants import MQTT_5_0
from iothub.mqtt.encoder import encode
from iothub.mqtt.packets import Auth, Connect
from iothub.mqtt.properties import Properties
from iothub_services.auth.authenticator import Authenticated, Credentials, Refusal
from iothub_services.auth.check_pool import FAILED_REPLY_S
from iothub_tenants.broker.client_contexts import ClientContext, Exchange
from iothub_tenants.broker.hub import Hub
from iothub_tenants.identity import Identity, parse_username

CONTINUE = 0x18
REAUTHENTICATE = 0x19
_HOOK = "hook"  # the rule: a plug-in refused the credentials


class ConnectRefusedError(IotHubError):
    """CONNECT is answered with this reason and the connection closes.

    `rule`: what decided, for the operator; the client does not get it. `extra_s`: wait this much longer, whatever the rule.
    """

    def __init__(self, reason: Reason, rule: str, *, extra_s: float = 0.0) -> None:
        super().__init__(rule)
        self.reason = reason
        self.rule = rule
        self.extra_s = extra_s


def recall(hub: Hub, connection: Connection, packet: Connect, client_id: str) -> Authenticated | None:
    """Return the device of a CONNECT if memory proves it; None: `authenticate` decides, as it does wherever plug-ins are asked first."""
    if hub.hooks.authenticate is not None or packet.properties.authentication_method is not None:
        return None
    name = parse_username(packet.username)
    return None if name is None else hub.authenticator.recall(_credentials(connection, packet, name, client_id))


async def authenticate(hub: Hub, connection: Connection, packet: Connect, client_id: str) -> Authenticated:
    """Return the authenticated device of a CONNECT that `recall` does not know. Raises ConnectRefusedError."""
    method = packet.properties.authentication_method
    name = parse_username(packet.username)
    if name is None:
        nameless = Credentials("", "", None, connection.peer_ip, client_id=client_id)
        return _required_login(hub.authenticator.refuse_nameless(nameless))
    credentials = _credentials(connection, packet, name, client_id)
    if method is not None:
        await _exchange_steps(hub, connection, _attempt(connection, packet, name, client_id))
        return _required_login(await hub.authenticator.vouch(credentials))
    if hub.hooks.authenticate is not None:
        opinion = await hub.hooks.authenticate(_attempt(connection, packet, name, client_id))
        if opinion is False:
            raise ConnectRefusedError(Reason.BAD_CREDENTIALS, _HOOK)
        if opinion is True:
            return _required_login(await hub.authenticator.vouch(credentials))
        recalled = hub.authenticator.recall(credentials)
        if recalled is not None:
            return recalled
    return _required_login(await hub.authenticator.authenticate(credentials))


def _credentials(connection: Connection, packet: Connect, name: Identity, client_id: str) -> Credentials:
    return Credentials(
        name.tenant, name.device, packet.password, connection.peer_ip, connection.certificate_subject, client_id
    )


def _required_login(answer: Authenticated | Refusal) -> Authenticated:
    if isinstance(answer, Refusal):
        raise ConnectRefusedError(answer.reason, answer.cause, extra_s=answer.reply_after_s - FAILED_REPLY_S)
    return answer


def _attempt(connection: Connection, packet: Connect, name: Identity, client_id: str) -> Attempt:
    return Attempt(
        tenant=name.tenant,
        device=name.device,
        client_id=client_id,
        secret=packet.password,
        peer=connection.peer,
        listener=connection.listener.name,
        certificate_subject=connection.certificate_subject,
        method=packet.properties.authentication_method or "",
        data=packet.properties.authentication_data,
    )


async def _exchange_steps(hub: Hub, connection: Connection, attempt: Attempt) -> None:
    """Run the steps of one exchange. Raises ConnectRefusedError: 0x8C for an unknown method, 0x87 for a failed one."""
    context: ClientContext = connection.control
    exchange = context.exchange = Exchange(attempt.method, attempt)
    while True:
        step = await _step(hub, exchange.attempt)
        if isinstance(step, Proof):
            exchange.last_data = step.data
            return
        if step is True:
            return
        if not isinstance(step, Challenge):
            if step is None:
                raise ConnectRefusedError(Reason.BAD_AUTHENTICATION_METHOD, "authentication_method")
            raise ConnectRefusedError(Reason.NOT_AUTHORIZED, _HOOK)
        data = await send_challenge(hub, connection, exchange, step.data)
        if connection.is_closed:
            raise ConnectRefusedError(Reason.NETWORK, "client_left")
        exchange.attempt = replace(exchange.attempt, data=data)


async def _step(hub: Hub, attempt: Attempt) -> Step:
    if hub.hooks.authenticate is None:
        return None
    return await hub.hooks.authenticate(attempt)


def send_challenge(hub: Hub, connection: Connection, exchange: Exchange, data: bytes) -> Deferred[bytes | None]:
    """Send a challenge; fires with the client's Authentication Data, or with None when the connection has closed, which may have been before."""
    awaited: Deferred[bytes | None] = Deferred()
    if connection.is_closed:
        awaited.callback(None)
        return awaited
    exchange.awaited = awaited
    hub.plane.send(connection, auth_packet(CONTINUE, exchange.method, data))
    hub.plane.resume(connection)
    return awaited


def auth_packet(code: int, method: str, data: bytes | None) -> bytes:
    """Encode an AUTH packet [MQTT-4.12.0-2] [MQTT-4.12.0-5]."""
    properties = Properties(authentication_method=method, authentication_data=data)
    return encode(Auth(code, properties), MQTT_5_0)
