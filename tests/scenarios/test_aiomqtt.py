"""Stories with aiomqtt: the asynchronous face of paho, as home automation uses it."""

from __future__ import annotations

import asyncio
from typing import Any

import aiomqtt
import pytest
from aiomqtt import ProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.support.clients.clients import unique
from tests.support.hubs.hub import Hub

TIMEOUT_S = 300  # only what hangs comes to it


def client(hub: Hub, device: str, name: str, protocol: ProtocolVersion, **options: Any) -> aiomqtt.Client:
    if protocol == ProtocolVersion.V5:
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 3600
        options |= {"clean_start": False, "properties": properties}
    else:
        options["clean_session"] = False
    return aiomqtt.Client(
        "127.0.0.1",
        hub.ports["tcp"],
        username=f"home/{device}",
        password="secret",
        identifier=name,
        protocol=protocol,
        **options,
    )


async def take(listening: aiomqtt.Client, count: int) -> list[str]:
    got = []
    async for message in listening.messages:
        assert isinstance(message.payload, bytes)
        got.append(message.payload.decode())
        if len(got) == count:
            break
    return got


@pytest.fixture(params=[ProtocolVersion.V311, ProtocolVersion.V5], ids=["3.1.1", "5.0"])
def protocol(request: pytest.FixtureRequest) -> ProtocolVersion:
    return ProtocolVersion(request.param)


def test_a_restarted_automation_misses_nothing(hub: Hub, protocol: ProtocolVersion) -> None:
    """It subscribes, is restarted while the sensor goes on at QoS 2, and gets everything in order."""
    topic, name = unique("home"), unique("automation")

    async def story() -> list[str]:
        async with client(hub, "console", name, protocol) as automation:
            await automation.subscribe(f"{topic}/#", qos=2)
        async with client(hub, "sensor", unique("sensor"), protocol) as sensor:
            for number in range(40):
                await sensor.publish(f"{topic}/motion", str(number), qos=2)
            async with client(hub, "console", name, protocol) as automation:
                missed = await take(automation, 40)
                await sensor.publish(f"{topic}/motion", "now", qos=0)
                return missed + await take(automation, 1)

    got = asyncio.run(asyncio.wait_for(story(), TIMEOUT_S))

    assert got == [*(str(number) for number in range(40)), "now"]


def test_many_devices_at_once(hub: Hub, protocol: ProtocolVersion) -> None:
    """Ten publishers at the same time, one listener: everything, each in its order."""
    topic = unique("home")

    async def publish(number: int) -> None:
        async with client(hub, "sensor", unique("sensor"), protocol) as sensor:
            for reading in range(20):
                await sensor.publish(f"{topic}/{number}", f"{number}:{reading}", qos=1)

    async def story() -> list[str]:
        async with client(hub, "console", unique("console"), protocol) as listener:
            await listener.subscribe(f"{topic}/+", qos=1)
            taking = asyncio.create_task(take(listener, 200))
            await asyncio.gather(*(publish(number) for number in range(10)))
            return await taking

    got = asyncio.run(asyncio.wait_for(story(), TIMEOUT_S))

    for number in range(10):
        assert [each for each in got if each.startswith(f"{number}:")] == [f"{number}:{n}" for n in range(20)]


def test_last_will_and_retained_state(hub: Hub, protocol: ProtocolVersion) -> None:
    """A device that vanishes leaves `offline` behind for who comes later."""
    topic = unique("home")

    async def story() -> list[str]:
        async with client(hub, "console", unique("console"), protocol) as watcher:
            await watcher.subscribe(topic, qos=1)
            will = aiomqtt.Will(topic, "offline", qos=1, retain=True)
            device = client(hub, "light", unique("light"), protocol, will=will)
            await device.__aenter__()
            await device.publish(topic, "online", qos=1, retain=True)
            seen = await take(watcher, 1)
            device._client.socket().shutdown(2)
            seen += await take(watcher, 1)
            with pytest.raises(aiomqtt.MqttError):
                await take(device, 1)
        async with client(hub, "console", unique("console"), protocol) as late:
            await late.subscribe(topic, qos=1)
            return seen + await take(late, 1)

    assert asyncio.run(asyncio.wait_for(story(), TIMEOUT_S)) == ["online", "offline", "offline"]
