# cython: annotation_typing=False
"""Handles CONNECT: authenticates the client, checks its Client Identifier, Will and quotas, then opens its session.

Knows no SQL, no cache and no queue: it calls the services in the order of `docs/flows/connect.md`.

Invariant: nothing of a session, a Will or a quota is touched before authentication has passed.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, cast

from twisted.internet.defer import Deferred

from iothub.base.errors import UnavailableError
from iothub.base.reasons import Reason
from iothub.engine.limits import ConnectionSettings
from iothub.engine.state import Connection, Session
from iothub.mqtt import packets
from iothub.mqtt.constants import MAXIMUM_REMAINING_LENGTH, MQTT_5_0, Limits, PacketType
from iothub.mqtt.decode import decode_packet
from iothub.mqtt.encoder import encode
from iothub.mqtt.errors import MqttError
from iothub.mqtt.packets import Connack, Connect
from iothub.mqtt.properties import Properties, encode_message_properties
from iothub_services.auth.authenticator import Authenticated, Refusal
from iothub_services.auth.port import ClientIdPolicy, DeviceRecord, TenantRecord
from iothub_services.connections.rejected import NO_TENANT, Client
from iothub_services.quota.names import Quota
from iothub_services.sessions.manager import Opened
from iothub_services.sessions.port import NEVER_EXPIRES, SessionRequest, Will
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.client_contexts import ClientContext, Exchange
from iothub_tenants.broker.hub import Hub, Rights
from iothub_tenants.broker.peer_routes import until_opened
from iothub_tenants.control.authentication import ConnectRefusedError, authenticate, recall
from iothub_tenants.identity import parse_username

ATTEMPTS = 3  # how often a CONNECT is checked again because the accounts changed meanwhile
CONNECT_LIMITS = Limits(client_id_bytes=256, will_bytes=65_535, user_properties=1024)
"""Before the tenant is known; its own limits are checked once it is."""
_CLAIM_LIMITS = replace(CONNECT_LIMITS, client_id_bytes=65_535)
"""Of a CONNECT that is refused for its Client Identifier: whose it was is read nevertheless; for many User Properties that would take too long."""
_VERSIONS = {3: "3.1", 4: "3.1.1", 5: "5"}  # by Protocol Level, as `mqtt.versions` names them
_CONNACK_3 = {version: [encode(Connack(0, is_present), version) for is_present in (False, True)] for version in (3, 4)}


class PendingConnect:
    """One CONNECT whose credentials are proven and whose session is not open yet."""

    __slots__ = ("broker", "client_id", "is_assigned", "login", "packet", "policy")

    def __init__(
        self, packet: Connect, login: Authenticated, broker: TenantBroker, policy: Rights, client_id: str
    ) -> None:
        self.packet = packet
        self.login = login
        self.broker = broker
        self.policy = policy
        self.client_id = client_id
        self.is_assigned = not packet.client_id


async def connect(hub: Hub, connection: Connection, header: int, body: bytes) -> None:
    """Answer one CONNECT; a refusal is sent a fixed time after the CONNECT arrived, whatever its cause (B69)."""
    answer_at = hub.clock.monotonic() + hub.settings.auth.failure_reply_ms / 1000
    packet: Connect | None = None
    try:
        packet = _decode(header, body)
        connection.maximum_packet_size = packet.properties.maximum_packet_size_bytes or 0  # from now on [MQTT-3.1.2-24]
        hub.traces.connecting(connection, packet)
        await admit(hub, connection, packet, _size(len(body)))
    except MqttError as error:
        if error.version == 0:
            raise
        refusal = _Refusal(error.version, packet or _decoded(body, _CLAIM_LIMITS), error.reason, str(error))
        await refuse(hub, connection, refusal, answer_at)
    except ConnectRefusedError as error:
        refusal = _Refusal(_version_of(packet), packet, error.reason, error.rule)
        await refuse(hub, connection, refusal, answer_at + error.extra_s)
    except UnavailableError as error:
        refusal = _Refusal(_version_of(packet), packet, Reason.SERVER_UNAVAILABLE, str(error))
        await refuse(hub, connection, refusal, answer_at)


class _Refusal(NamedTuple):
    """How a CONNECT is refused. `packet`: None if it cannot be decoded; `rule`: what decided."""

    version: int
    packet: Connect | None
    reason: Reason
    rule: str


def _version_of(packet: Connect | None) -> int:
    return MQTT_5_0 if packet is None else packet.version


async def refuse(hub: Hub, connection: Connection, refusal: _Refusal, answer_at: float) -> None:
    """Send the CONNACK that names the reason [MQTT-3.2.2-7] and close."""
    waiting_s = answer_at - hub.clock.monotonic()
    if waiting_s > 0 and refusal.reason is not Reason.UNSUPPORTED_VERSION:
        delay: Deferred[None] = Deferred()
        hub.later(waiting_s, lambda: delay.callback(None))
        await delay
    if connection.close_reason is not Reason.SERVER_UNAVAILABLE:  # else `reject_timed_out` has answered it
        _reject(hub, connection, refusal)


def reject_timed_out(hub: Hub, connection: Connection, body: bytes) -> None:
    """Reject a CONNECT that the stores did not answer in time, before the client itself gives up (§3.2.2.2)."""
    context: ClientContext = connection.control
    exchange = context.exchange
    is_clients_turn = exchange is not None and exchange.awaited is not None  # the hub waits for its AUTH
    if not connection.is_closing and not is_clients_turn:
        _reject(
            hub, connection, _Refusal(_version(body), _decoded(body), Reason.SERVER_UNAVAILABLE, "not_answered_in_time")
        )


def reject_overload(hub: Hub, connection: Connection, body: bytes) -> None:
    """Reject a CONNECT without decoding it, because the hub is short of memory or has too many to handle: a rejection must be cheap."""
    version = _version(body)
    if connection.is_closing:
        return
    if version in _VERSIONS:
        _reject(hub, connection, _Refusal(version, None, Reason.OVERLOAD, Reason.OVERLOAD.word))
    else:
        hub.plane.close(connection, Reason.OVERLOAD)  # without CONNACK: the client speaks an unknown version


def _version(body: bytes) -> int:
    """Return the Protocol Level of a CONNECT, which follows the Protocol Name; 0: there is none."""
    level = 2 + int.from_bytes(body[:2], "big")
    return body[level] if level < len(body) else 0


def _decode(header: int, body: bytes) -> Connect:
    return decode_packet(header, body, 0, CONNECT_LIMITS)  # type: ignore[return-value]  # a `cast` would be one call more


def _decoded(body: bytes, limits: Limits = CONNECT_LIMITS) -> Connect | None:
    try:
        return cast("Connect", decode_packet(PacketType.CONNECT << 4, body, 0, limits=limits))
    except MqttError:
        return None


def _reject(hub: Hub, connection: Connection, refusal: _Refusal) -> None:
    reason, is_5 = refusal.reason, refusal.version == MQTT_5_0
    _note_refusal(hub, connection, refusal)
    code = reason.code if is_5 else reason.connack
    if code == Reason.ADMINISTRATIVE.code:
        code = Reason.BANNED.code  # 0x98 is for DISCONNECT only (§3.2.2.2)
    final_packet = encode(Connack(code), refusal.version) if code else b""
    hub.plane.close(connection, reason, final_packet)


def _note_refusal(hub: Hub, connection: Connection, refusal: _Refusal) -> None:
    """Count and log it; when the connection closes, it is not logged once more."""
    reason = refusal.reason
    hub.counters.connected(connection.listener.name, refusal.version, reason.word)
    hub.traces.refused(connection, reason, refusal.rule)
    if reason is not Reason.NETWORK:
        claimed = _claimed(hub, connection, refusal)
        hub.connection_log.refused(claimed, reason, refusal.rule)
        hub.events.connect_refused(claimed, reason, refusal.rule)
    if not connection.is_closed:
        hub.answered.add(connection)


def _close_unanswered(hub: Hub, connection: Connection, packet: Connect) -> None:
    """Close a connection whose client accepts no packet as large as its CONNACK; no other answer says what is wrong."""
    refusal = _Refusal(packet.version, packet, Reason.PACKET_TOO_LARGE, "client_maximum_packet_size")
    _note_refusal(hub, connection, refusal)
    hub.plane.close(connection, refusal.reason)


def _claimed(hub: Hub, connection: Connection, refusal: _Refusal) -> Client:
    """Return who the client claims to be. A username that names no device is left out: it may be a misplaced secret."""
    packet, name = refusal.packet, None
    if packet is not None:
        name = parse_username(packet.username)
    tenant_id = NO_TENANT if name is None else hub.authenticator.directory.remembered_tenant_id(name.tenant)
    return Client(
        tenant_id=tenant_id,
        tenant="" if name is None else name.tenant,
        device="" if name is None else name.device,
        client_id="" if packet is None else packet.client_id[: CONNECT_LIMITS.client_id_bytes],
        address=connection.peer,
        listener=connection.listener.name,
        version=refusal.version,
    )


async def admit(hub: Hub, connection: Connection, packet: Connect, size_bytes: int) -> None:
    """Authenticate a decoded CONNECT of `size_bytes` and open its session.

    Raises ConnectRefusedError; UnavailableError: the shared ledger does not answer.
    """
    if _VERSIONS[packet.version] not in hub.settings.mqtt.versions:
        raise ConnectRefusedError(Reason.UNSUPPORTED_VERSION, "mqtt.versions")
    client_id = packet.client_id or assigned_client_id()
    for attempt in range(ATTEMPTS):
        login = recall(hub, connection, packet, client_id) or await authenticate(hub, connection, packet, client_id)
        broker = hub.brokers.present(login.tenant.id)
        if broker is None or not hub.routes.is_opened(broker.plane):
            broker = await _opened_broker(hub, login.tenant)
        pending = _check_connect(hub, connection, packet, client_id, login, broker)
        _check_size(pending, size_bytes)
        if attempt == 0:
            if broker.allowance.is_shared:
                await broker.allowance.wait_for_room((Quota.CONNECTS, 1))
            _take_connect_rate(broker)
        key = (broker.tenant_id, client_id)
        waiting = hub.directory.acquire(key)
        written_s = 0.0 if waiting is None else await waiting
        try:
            if broker.allowance.is_shared or not hub.cluster.is_alone:
                await _wait_for_other_hubs(hub, pending, written_s)
            if connection.is_closed:
                return
            is_same_broker = hub.brokers.present(broker.tenant_id) is broker  # idle ones are dropped
            if is_same_broker and hub.authenticator.is_current(login):
                await _open_session(hub, connection, pending)
                return
        finally:
            hub.directory.give(key)
    raise ConnectRefusedError(Reason.SERVER_UNAVAILABLE, "accounts_changing")


async def _opened_broker(hub: Hub, tenant: TenantRecord) -> TenantBroker:
    """Make the tenant's broker if need be, and wait until the other hubs' routes to it are known."""
    broker = await hub.brokers.broker(tenant)
    if not hub.routes.is_opened(broker.plane):
        await until_opened(hub.routes, broker.plane)
    return broker


async def _wait_for_other_hubs(hub: Hub, pending: PendingConnect, written_s: float) -> None:
    """Wait for what they have written about the session, and for units that they have."""
    if not hub.cluster.is_alone:
        await hub.cluster.catch_up(0.0 if _has_will_elsewhere(pending) else written_s)
    if pending.broker.allowance.is_shared:
        await pending.broker.wait_for_connect_room(_request(pending))


def _has_will_elsewhere(pending: PendingConnect) -> bool:
    """Whether another hub may have sent the session's Will just now: what the log says of that decides who sends it."""
    present = pending.broker.plane.sessions.get(pending.client_id)
    return present is not None and present.control.is_elsewhere and present.control.will is not None


def _take_connect_rate(broker: TenantBroker) -> None:
    """Raises ConnectRefusedError: the rate `connects` is used up."""
    if not broker.allowance.take_rate(Quota.CONNECTS):
        raise ConnectRefusedError(Reason.CONNECTION_RATE, rule_of(Quota.CONNECTS))


def _check_connect(
    hub: Hub, connection: Connection, packet: Connect, client_id: str, login: Authenticated, broker: TenantBroker
) -> PendingConnect:
    """Check everything of an authenticated CONNECT that needs no session."""
    broker.allowance.note_device(login.device)
    policy = hub.policy_of(login, client_id, connection)
    pending = PendingConnect(packet, login, broker, policy, client_id)
    _check_client_id(pending)
    if packet.will is not None:
        _check_will(pending, packet.will)
    return pending


def rule_of(quota: Quota) -> str:
    """Return how the log and `iothub rejected` name a quota that refuses."""
    return f"quota_{quota.value}"


def assigned_client_id() -> str:
    """Return the Client Identifier of a client that has none [MQTT-3.1.3-6]."""
    return f"auto-{secrets.token_hex(12)}"


def _check_client_id(pending: PendingConnect) -> None:
    is_known = pending.client_id in pending.broker.plane.sessions
    if not is_known and pending.login.tenant.client_id_policy is ClientIdPolicy.OWNER:
        return
    rule = refused_client_id(
        pending.broker, pending.login.tenant, pending.login.device, pending.client_id, pending.is_assigned
    )
    if rule:
        raise ConnectRefusedError(Reason.NOT_AUTHORIZED, rule)


def refused_client_id(
    broker: TenantBroker, tenant: TenantRecord, device: DeviceRecord, client_id: str, is_assigned: bool
) -> str:
    """Return the rule by which this device may not have this Client Identifier, "" if it may."""
    policy = tenant.client_id_policy
    if is_assigned and policy is ClientIdPolicy.OWNER:
        return ""
    if policy is not ClientIdPolicy.OWNER and not policy.permits(device.name, client_id):
        return f"client_id_policy_{policy.value}"
    present = broker.plane.sessions.get(client_id)
    if present is not None and (present.device != device.name or present.control.device_id > device.id > 0):
        return "client_id_of_another_device"
    return ""


def _size(body_bytes: int) -> int:
    """Return the size of a CONNECT with a body of this size (§2.1.4): the plane reads none above `connect_bytes`, 128 KiB."""
    return body_bytes + 2 + (body_bytes > 0x7F) + (body_bytes > 0x3FFF)


def _check_size(pending: PendingConnect, size_bytes: int) -> None:
    """Check the size limits of every packet: CONNECT was read before its tenant was known."""
    limits, packet = pending.broker.allowance.limits_of(pending.login.device.name), pending.packet
    if limits.packet_bytes and size_bytes > limits.packet_bytes:
        pending.broker.allowance.count_refusal(Quota.PACKET_BYTES)
        raise ConnectRefusedError(Reason.PACKET_TOO_LARGE, rule_of(Quota.PACKET_BYTES))
    count = len(packet.properties.user_properties)
    if packet.will is not None:
        count = max(count, len(packet.will.properties.user_properties))
    if limits.user_properties and count > limits.user_properties:
        pending.broker.allowance.count_refusal(Quota.USER_PROPERTIES)
        raise ConnectRefusedError(Reason.QUOTA, rule_of(Quota.USER_PROPERTIES))


def _check_will(pending: PendingConnect, will: packets.Will) -> None:
    """Check a Will as a PUBLISH, by the same limits and rights; it is checked again when it fires."""
    limits = pending.broker.allowance.limits_of(pending.login.device.name)
    if limits.will_bytes and len(will.payload) > limits.will_bytes:
        pending.broker.allowance.count_refusal(Quota.WILL_BYTES)
        raise ConnectRefusedError(Reason.PACKET_TOO_LARGE, rule_of(Quota.WILL_BYTES))
    topic = will.topic.encode()
    if pending.broker.check_topic(topic):
        raise ConnectRefusedError(Reason.TOPIC_NAME_INVALID, "will_topic_invalid")
    if not pending.policy.may_publish(topic):
        raise ConnectRefusedError(Reason.NOT_AUTHORIZED, "will_topic_denied")


async def _open_session(hub: Hub, connection: Connection, pending: PendingConnect) -> None:
    """Reserve the quotas, open the session and admit the connection. The session's lock is held."""
    context: ClientContext = connection.control
    broker, request = pending.broker, _request(pending)
    _check_client_id(pending)  # again: the session may have been opened while this CONNECT waited for its lock
    if _is_connack_too_large(hub, connection, pending, request):
        _close_unanswered(hub, connection, pending.packet)
        return
    reservation = broker.reserve_connect(context, request)
    if isinstance(reservation, Quota):
        raise ConnectRefusedError(Reason.QUOTA, rule_of(reservation))
    try:
        opened = hub.sessions.open_at_once(broker, request) or await hub.sessions.open(broker, request)
    except BaseException:
        broker.allowance.settle_connect(reservation, None)
        context.detach(Reason.SERVER_UNAVAILABLE)
        raise
    session = opened.session
    broker.allowance.settle_connect(reservation, session)
    try:
        if not hub.authenticator.is_current(pending.login):
            await _review_login(hub, connection, pending)
    except (ConnectRefusedError, UnavailableError):
        hub.sessions.withdraw(broker, opened)
        context.detach(Reason.SERVER_UNAVAILABLE)
        raise
    if connection.is_closing and connection.close_reason is not Reason.NETWORK:
        hub.sessions.withdraw(broker, opened)  # it was rejected meanwhile: no later CONNECT may resume this session
        return
    hub.plane.policy_changed(session, pending.policy)
    context.attach(session, pending.login)
    broker.session_began(session, pending.login.device)
    if connection.is_closed:  # the client left while its session was opened
        context.detach(Reason.NETWORK)
    else:
        _admit_client(hub, connection, pending, request, opened)


def _admit_client(
    hub: Hub, connection: Connection, pending: PendingConnect, request: SessionRequest, opened: Opened
) -> None:
    """Answer the CONNECT and bind its connection to the session."""
    context, broker, session = connection.control, pending.broker, opened.session
    settings = broker.connection_settings(hub.settings.mqtt, session.device, pending.packet)
    connack = _connack(pending, request, settings, opened.is_present, context.exchange)
    hub.counters.connected(connection.listener.name, pending.packet.version, "accepted")
    if pending.login.token is not None:
        hub.token_ends.watch(connection, pending.login.ends_at)
    hub.plane.admit(connection, session, settings, connack)
    hub.traces.admitted(connection, session)
    broker.connected(session, connection, pending.packet)
    if hub.connection_log.has_line(pending.login.tenant.id, pending.login.tenant.name):
        hub.connection_log.connected(client_of(connection, session, pending.login.tenant))


def client_of(connection: Connection, session: Session, tenant: TenantRecord) -> Client:
    """Return who a connected client is."""
    listener = connection.listener.name
    version = connection.version
    return Client(tenant.id, tenant.name, session.device, session.client_id, connection.peer, listener, version)


async def _review_login(hub: Hub, connection: Connection, pending: PendingConnect) -> None:
    """Check the login again if the accounts changed while the session was opened: `AccountChangeApplier` did not see this session."""
    while not hub.authenticator.is_current(pending.login):
        address = connection.peer_ip
        answer = await hub.authenticator.review(pending.login, client_id=pending.client_id, address=address)
        if isinstance(answer, Refusal):
            raise ConnectRefusedError(answer.reason, answer.cause)
        pending.login = answer
        pending.policy = hub.policy_of(answer, pending.client_id, connection)


def _request(pending: PendingConnect) -> SessionRequest:
    packet = pending.packet
    if packet.version == MQTT_5_0:
        asked_s = packet.properties.session_expiry_interval_s or 0
    else:
        asked_s = 0 if packet.is_clean_start else NEVER_EXPIRES
    return SessionRequest(
        client_id=pending.client_id,
        device=pending.login.device.name,
        version=packet.version,
        is_clean_start=packet.is_clean_start,
        expiry_s=pending.broker.expiry_of(pending.login.device.name, asked_s),
        will=None if packet.will is None else _will(packet.will),
        device_id=pending.login.device.id,
    )


def _will(will: packets.Will) -> Will:
    return Will(
        topic=will.topic.encode(),
        payload=will.payload,
        qos=will.qos,
        retain=will.is_retained,
        properties=encode_message_properties(will.properties),
        delay_s=will.properties.will_delay_interval_s or 0,
        expiry_s=will.properties.message_expiry_interval_s,
    )


def _is_connack_too_large(hub: Hub, connection: Connection, pending: PendingConnect, request: SessionRequest) -> bool:
    """Whether the client accepts no packet of that size; asked before its session is opened [MQTT-3.1.2-24]."""
    if not connection.maximum_packet_size:
        return False
    context: ClientContext = connection.control
    settings = pending.broker.connection_settings(hub.settings.mqtt, pending.login.device.name, pending.packet)
    connack = _connack(pending, request, settings, False, context.exchange)
    return len(connack) > connection.maximum_packet_size


def _connack(
    pending: PendingConnect,
    request: SessionRequest,
    settings: ConnectionSettings,
    is_present: bool,
    exchange: Exchange | None,
) -> bytes:
    """Encode the CONNACK; for 5.0 with what differs from what the client asked for or from the protocol's default."""
    packet = pending.packet
    if packet.version != MQTT_5_0:
        return _CONNACK_3[packet.version][is_present]
    asked_s = packet.properties.session_expiry_interval_s or 0
    usual = (
        is_present,
        request.expiry_s if request.expiry_s != asked_s else None,
        settings.inbound_maximum if settings.inbound_maximum < 65_535 else None,
        # Above what a Remaining Length can express there is no limit, and clients such as paho-mqtt reject such a value.
        settings.packet_bytes if settings.packet_bytes <= MAXIMUM_REMAINING_LENGTH else None,
        settings.topic_aliases or None,
        settings.keep_alive_s if settings.keep_alive_s != packet.keep_alive_s else None,
    )
    if not pending.is_assigned and exchange is None:
        return _usual_connack(*usual)
    properties = replace(
        _properties(*usual[1:]),
        assigned_client_identifier=pending.client_id if pending.is_assigned else None,  # [MQTT-3.1.3-7]
        authentication_method=exchange.method if exchange is not None else None,  # [MQTT-4.12.0-5]
        authentication_data=exchange.last_data if exchange is not None else None,
    )
    return encode(Connack(0, is_present, properties), MQTT_5_0)


@lru_cache(maxsize=1024)  # a tenant's clients mostly ask for the same
def _usual_connack(is_present: bool, *values: int | None) -> bytes:
    return encode(Connack(0, is_present, _properties(*values)), MQTT_5_0)


def _properties(
    expiry_s: int | None,
    receive_maximum: int | None,
    packet_bytes: int | None,
    topic_aliases: int | None,
    keep_alive_s: int | None,
) -> Properties:
    return Properties(
        session_expiry_interval_s=expiry_s,
        receive_maximum=receive_maximum,
        maximum_packet_size_bytes=packet_bytes,
        topic_alias_maximum=topic_aliases,
        server_keep_alive_s=keep_alive_s,
    )
