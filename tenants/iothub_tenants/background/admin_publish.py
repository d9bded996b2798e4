"""Publishes a message that an administrator of a tenant has written, under the tenant's limits and rates.

Fulfils `message.publish` of `iothub.records.admin_commands.Verb`. Knows no transport. The message takes a client's way through the router, so
that persistent sessions, streams and the other hubs get it. No access rule decides: whoever asks may change those anyway.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import Deferred

from iothub.base.errors import (
    ConfigError,
    ConflictError,
    DeniedError,
    LocalProtocolError,
    TenantLimitError,
    UnavailableError,
)
from iothub.engine.filters import check_topic_name
from iothub.engine.message import Message
from iothub.engine.storage import GAVE_UP
from iothub.mqtt.constants import PacketType
from iothub.mqtt.errors import MqttError
from iothub.mqtt.fields import FieldReader, write_variable_byte_integer
from iothub.mqtt.properties import Properties, decode_properties, encode_message_properties
from iothub.records.admin_commands import Json, Reply, Request, Verb, Verbs, no_tenant
from iothub_services.auth.port import TenantState
from iothub_services.quota.names import Quota
from iothub_tenants.broker.allowance import LARGEST_PACKET
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.hub import Hub
from iothub_tenants.broker.peer_routes import until_opened
from iothub_tenants.identity import shown

PUBLISHER = "$admin"  # in place of a client id: no client can have it in a stream's record of another one
_MANY = 65_535
_LEVELS = 1_024
_EXPIRY_MOST_S = 0xFFFF_FFFF
_NOBODY = 0x10  # "No matching subscribers"; one that is retained has Success
_NOT_RETAINED = 0x97  # beside Success or "No matching subscribers"

ApplyChanges = Callable[[], Awaitable[None]]


class AdminPublish:
    """On the reactor thread. Every change that was made in the accounts before is in force."""

    def __init__(self, hub: Hub, apply_changes: ApplyChanges) -> None:
        self._hub = hub
        self._apply_changes = apply_changes
        self.verbs: Verbs = {Verb.MESSAGE_PUBLISH: self._publish}

    async def _publish(self, request: Request, _reply: Reply) -> Json:
        message = self._message(request)
        await self._apply_changes()
        broker = await self._broker(request.tenant)
        self._check(broker, request, message)
        self._require_room(broker)
        self._take_units(broker, message)
        route = broker.plane.router.match(message.topic)
        done: Deferred[int] = Deferred()
        self._hub.plane.publish(broker.plane, message, done.callback)
        code = await done
        if code == GAVE_UP:
            raise UnavailableError(
                "the store did not take the message; clients that are connected may have it: try again"
            )
        return {
            "message_id": message.message_id.hex(),
            "is_retained": message.retain and code != _NOT_RETAINED,
            "has_subscribers": code != _NOBODY and bool(route.targets or route.groups),
        }

    # --- what is asked

    def _message(self, request: Request) -> Message:
        """Raises ConfigError."""
        qos, expiry_s = request.number("qos"), request.argument.get("expiry_s")
        if qos > 2:
            raise ConfigError("qos: expected 0, 1 or 2")
        try:
            payload = base64.b64decode(request.text("payload"), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError("payload: expected Base64") from None
        if expiry_s is not None and not 0 <= request.number("expiry_s") <= _EXPIRY_MOST_S:
            raise ConfigError(f"expiry_s: expected a number from 0 to {_EXPIRY_MOST_S}")
        expires_at = 0.0 if expiry_s is None else self._hub.clock.wall() + request.number("expiry_s")
        return Message(
            request.text("topic").encode(),
            payload,
            qos,
            request.flag("retain"),
            _encoded(request.argument.get("properties")),
            expires_at,
            self._hub.message_ids.allocate(),
            None,
            PUBLISHER,
        )

    async def _broker(self, tenant: str) -> TenantBroker:
        """Raises NotFoundError, ConflictError: the tenant is suspended, or being deleted."""
        record = await self._hub.authenticator.directory.tenant(tenant)
        if record is None:
            raise no_tenant(tenant)
        if record.state is not TenantState.ACTIVE:
            raise ConflictError(f"tenant {tenant} is {record.state.value}: nothing is published for it")
        broker = await self._hub.brokers.broker(record)
        await until_opened(self._hub.routes, broker.plane)
        return broker

    def _check(self, broker: TenantBroker, request: Request, message: Message) -> None:
        """Raises ConfigError: it is no Topic Name. DeniedError: it is the hub's own. TenantLimitError."""
        topic = message.topic
        if check_topic_name(topic, _LEVELS, _MANY):
            raise ConfigError(
                f"topic {shown(request.text('topic'))} is not a valid Topic Name: no wildcards, not empty"
            )
        if topic.startswith(b"$"):
            raise DeniedError(
                f"topic {shown(request.text('topic'))}: only the hub publishes below topics that begin with $"
            )
        code, quota = broker.judge_topic(topic)
        if code and quota is not None:
            raise self._limited(broker, quota)
        limits = broker.limits
        if _size(message) > (limits.packet_bytes or LARGEST_PACKET):
            raise self._limited(broker, Quota.PACKET_BYTES)
        properties = request.argument.get("properties")
        users = properties.get("user_properties", ()) if isinstance(properties, dict) else ()
        if len(users) > broker.plane.user_properties:
            raise self._limited(broker, Quota.USER_PROPERTIES)

    def _limited(self, broker: TenantBroker, quota: Quota) -> TenantLimitError:
        broker.allowance.count_refusal(quota)
        name = broker.record.name
        return TenantLimitError(
            f"the limit {quota.value} of tenant {name} refuses the message: `iothub quota show {name}` shows it",
            limit=quota.value,
        )

    # --- how much

    def _require_room(self, broker: TenantBroker) -> None:
        """Raises UnavailableError: clients would wait now, too."""
        if self._hub.must_wait(broker.plane):
            raise UnavailableError("the hub takes no message of this tenant at the moment: try again")

    def _take_units(self, broker: TenantBroker, message: Message) -> None:
        """Take units of each rate; those of a day last, as the others may still refuse. Raises TenantLimitError."""
        plane, size, now = broker.plane, _size(message), self._hub.clock.monotonic()
        queues, sinks = _receivers(broker, message)
        meters: tuple[tuple[Quota, Any, int], ...] = (
            (Quota.PUBLISH_MESSAGES, plane.inbound_messages, 1),
            (Quota.PUBLISH_BYTES, plane.inbound_bytes, size),
            (Quota.PERSISTENT_FANOUT, plane.persistent_fanout, queues),
            (Quota.STREAM_MESSAGES, plane.sink_messages, sinks),
            (Quota.STREAM_BYTES, plane.sink_bytes, sinks * size),
            (Quota.PUBLISH_MESSAGES, plane.day_messages, 1),
            (Quota.PUBLISH_BYTES, plane.day_bytes, size),
        )
        for quota, meter, units in meters:
            if meter is not None and units and meter.take(units, now):
                raise self._limited(broker, quota)


def _receivers(broker: TenantBroker, message: Message) -> tuple[int, int]:
    """Return how many queues and how many streams get the message. Raises UnavailableError: a stream, or another hub, is full."""
    queues = sinks = 0
    route = broker.plane.router.match(message.topic)
    for target in route.targets:
        session = target.session
        if session.is_sink:
            if session.control.is_full and (not session.is_peer or (message.qos and target.qos)):
                raise UnavailableError("a stream or another hub takes no more messages at the moment: try again")
            sinks += not session.is_peer
        elif message.qos and target.qos and session.is_persistent:
            queues += 1
    if message.qos:
        queues += sum(group.has_persistent() for group in route.groups)
    return queues, sinks


def _size(message: Message) -> int:
    return len(message.topic) + len(message.payload) + len(message.properties)


def _encoded(given: object) -> bytes:
    """Return the properties of a message as MQTT 5.0 has them. Raises ConfigError: they are none."""
    if not given:
        return b""
    if not isinstance(given, dict):
        raise ConfigError("properties: expected an object")
    try:
        data = given.get("correlation_data")
        found = Properties(
            payload_format_indicator=given.get("payload_format_indicator"),
            content_type=given.get("content_type"),
            response_topic=given.get("response_topic"),
            correlation_data=None if data is None else base64.b64decode(data, validate=True),
            user_properties=tuple((str(name), str(value)) for name, value in given.get("user_properties", ())),
        )
        encoded = encode_message_properties(found)
        head = write_variable_byte_integer(len(encoded), "Property Length")
        decode_properties(FieldReader(head + encoded, "PUBLISH"), PacketType.PUBLISH, _MANY)
    except (MqttError, LocalProtocolError) as error:
        raise ConfigError(f"properties: {error}") from None
    except (binascii.Error, TypeError, ValueError):
        raise ConfigError("properties: not those of an MQTT 5.0 PUBLISH") from None
    return encoded
