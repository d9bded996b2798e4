"""Stories with paho-mqtt 2, in 3.1.1 and 5.0, with its own thread and its own reconnecting."""

from __future__ import annotations

import queue
import socket
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.support.clients.clients import unique
from tests.support.hubs.hub import Hub

TIMEOUT_S = 300  # only what hangs comes to it


class Device:
    """A paho client that keeps what happened in queues."""

    def __init__(
        self, hub: Hub, version: int, device: str, client_id: str, transport: str = "tcp", **will: Any
    ) -> None:
        self.hub = hub
        self.version = version
        self.transport = transport
        is_five = version == paho.MQTTv5
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=None if is_five else False,
            protocol=version,
            transport="websockets" if transport == "ws" else "tcp",
        )
        self.client.username_pw_set(f"home/{device}", "secret")
        if will:
            self.client.will_set(**will)
        self.client.reconnect_delay_set(1, 1)
        self.connected: queue.Queue[tuple[bool, Any]] = queue.Queue()
        self.disconnected: queue.Queue[Any] = queue.Queue()
        self.subscribed: queue.Queue[list[Any]] = queue.Queue()
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.client.on_connect = lambda _c, _u, flags, code, _p: self.connected.put((flags.session_present, code))
        self.client.on_disconnect = lambda _c, _u, _f, code, _p: self.disconnected.put(code)
        self.client.on_subscribe = lambda _c, _u, _m, codes, _p: self.subscribed.put(codes)
        self.client.on_message = lambda _c, _u, message: self.messages.put(message)

    def connect(self) -> bool:
        """Connect, and return Session Present."""
        options: dict[str, Any] = {}
        if self.version == paho.MQTTv5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 3600
            options = {"clean_start": False, "properties": properties}
        self.client.connect("127.0.0.1", self.hub.ports[self.transport], **options)
        self.client.loop_start()
        present, code = self.connected.get(timeout=TIMEOUT_S)
        assert not code.is_failure, code
        return present

    def subscribe(self, topic: str, qos: int) -> list[Any]:
        self.client.subscribe(topic, qos)
        return self.subscribed.get(timeout=TIMEOUT_S)

    def publish(self, topic: str, payload: str, qos: int, **options: Any) -> None:
        self.client.publish(topic, payload, qos, **options).wait_for_publish(TIMEOUT_S)

    def payloads(self, count: int) -> list[str]:
        return [self.messages.get(timeout=TIMEOUT_S).payload.decode() for _ in range(count)]

    def leave(self) -> None:
        self.client.disconnect()
        self.disconnected.get(timeout=TIMEOUT_S)
        self.client.loop_stop()

    def cut(self) -> None:
        """The network fails: no DISCONNECT."""
        found = self.client.socket()
        raw = getattr(found, "_socket", found)
        raw.shutdown(socket.SHUT_RDWR)


@pytest.fixture(params=[paho.MQTTv311, paho.MQTTv5], ids=["3.1.1", "5.0"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.mark.parametrize("transport", ["tcp", "ws"])
def test_a_day_of_a_console(hub: Hub, version: int, transport: str) -> None:
    """Subscribe, leave, miss fifty messages, return, get them in order, go on live.

    The order is that of each QoS: a client shows QoS 2 at its PUBREL, later than the QoS 1 behind it.
    """
    topic, name = unique("room"), unique("console")
    console = Device(hub, version, "console", name, transport)
    assert not console.connect()
    assert [code.value for code in console.subscribe(f"{topic}/+", 2)] == [2]
    console.leave()
    sensor = Device(hub, version, "sensor", unique("sensor"), transport)
    sensor.connect()
    for number in range(50):
        sensor.publish(f"{topic}/t", str(number), 1 + number % 2)

    again = Device(hub, version, "console", name, transport)
    assert again.connect()
    got = again.payloads(50)
    sensor.publish(f"{topic}/t", "live", 0)

    for qos in (1, 2):
        assert [each for each in got if 1 + int(each) % 2 == qos] == [str(number) for number in range(qos - 1, 50, 2)]
    assert again.payloads(1) == ["live"]
    again.leave()
    sensor.leave()


def test_network_failures_in_the_middle_of_a_stream(hub: Hub, version: int) -> None:
    """The network of both ends fails while they talk at QoS 2; paho reconnects by itself; every message arrives once, in order."""
    topic = unique("room")
    console, sensor = (Device(hub, version, name, unique(name)) for name in ("console", "sensor"))
    for device in (console, sensor):
        device.connect()
    console.subscribe(topic, 2)
    got: list[str] = []

    for turn in range(3):
        sent = [sensor.client.publish(topic, str(turn * 20 + number), 2) for number in range(20)]
        (console if turn % 2 else sensor).cut()
        for each in sent:
            each.wait_for_publish(TIMEOUT_S)
        got += console.payloads(20)

    assert got == [str(number) for number in range(60)]
    assert console.messages.empty()
    for device in (console, sensor):
        device.leave()


def test_a_will_after_a_network_failure(hub: Hub, version: int) -> None:
    """The console hears the light's Will, and then its greeting when paho has reconnected."""
    topic = unique("light")
    console = Device(hub, version, "console", unique("console"))
    light = Device(hub, version, "light", unique("light"), topic=topic, payload="gone", qos=1, retain=True)
    console.connect()
    console.subscribe(topic, 1)
    light.connect()
    light.publish(topic, "here", 1, retain=True)
    assert console.payloads(1) == ["here"]

    light.cut()

    assert console.payloads(1) == ["gone"]
    light.connected.get(timeout=TIMEOUT_S)
    light.publish(topic, "back", 1, retain=True)
    assert console.payloads(1) == ["back"]
    for device in (console, light):
        device.leave()


def test_request_and_response_with_properties(hub: Hub) -> None:
    """5.0: a question with Response Topic and Correlation Data is answered by another device."""
    service, reply = unique("service"), unique("reply")
    asking, answering = (Device(hub, paho.MQTTv5, name, unique(name)) for name in ("console", "light"))
    for device in (asking, answering):
        device.connect()
    answering.subscribe(service, 1)
    asking.subscribe(reply, 1)
    question = Properties(PacketTypes.PUBLISH)
    question.ResponseTopic, question.CorrelationData = reply, b"\x01"
    question.UserProperty = [("b", "1"), ("a", "2")]

    asking.publish(service, "state?", 1, properties=question)
    heard = answering.messages.get(timeout=TIMEOUT_S)
    back = Properties(PacketTypes.PUBLISH)
    back.CorrelationData = heard.properties.CorrelationData  # type: ignore[union-attr]
    answering.publish(heard.properties.ResponseTopic, "on", 1, properties=back)  # type: ignore[union-attr]

    answer = asking.messages.get(timeout=TIMEOUT_S)
    assert heard.properties.UserProperty == [("b", "1"), ("a", "2")]  # type: ignore[union-attr]
    assert (answer.payload, answer.properties.CorrelationData) == (b"on", b"\x01")  # type: ignore[union-attr]
    for device in (asking, answering):
        device.leave()


def test_two_with_one_client_identifier(hub: Hub, version: int) -> None:
    """The second takes over; in 5.0 the first is told why."""
    name = unique("console")
    first, second = Device(hub, version, "console", name), Device(hub, version, "console", name)
    first.connect()
    first.client.reconnect_delay_set(60, 60)

    assert second.connect()

    code = first.disconnected.get(timeout=TIMEOUT_S)
    assert code.value == 0x8E or version == paho.MQTTv311
    first.client.loop_stop()
    second.leave()
