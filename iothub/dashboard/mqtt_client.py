"""A small MQTT 3.1.1 client on the hub's own listener, for the page that plays a device. QoS 0 alone.

Knows no page and no session: whoever has name and password of a device may do what the device may, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from typing import NamedTuple

PAYLOAD_BYTES = 64 * 1024  # of a message that is sent, and of one that is kept; longer ones are cut
CLIENT_ID_BYTES = 256
_PACKET_BYTES = 1 << 20  # what is longer ends the connection: no page shows it
_KEEP_ALIVE_S = 60
_CONNECT_S = 10.0
_SEND_S = 10.0
_CONNECT, _CONNACK, _PUBLISH, _SUBSCRIBE, _SUBACK, _PINGREQ, _DISCONNECT = 0x10, 0x20, 0x30, 0x82, 0x90, 0xC0, 0xE0
_REFUSED = {
    1: "the protocol version is refused",
    2: "the Client Identifier is refused",
    3: "the hub is not available",
    4: "name or password is wrong",
    5: "it is not allowed",
}
_FAILED = 0x80
_SHARE = "$share/"
_WILDCARDS = frozenset("+#")


class Received(NamedTuple):
    """A message. `size`: its payload as it came; `payload`: what is kept of it."""

    topic: str
    payload: bytes
    size: int
    qos: int
    is_retained: bool


class MqttError(Exception):
    """The connection cannot be made, or has ended; the text is for the page."""


class MqttClient:
    """One connection. `on_message` and `on_end` are called on the event loop; `on_end` once, with why.

    Invariant: nothing is kept here but the packet that is being read, of at most _PACKET_BYTES.
    """

    def __init__(
        self,
        on_message: Callable[[Received], object],
        on_end: Callable[[str], object],
        on_subscribed: Callable[[bool], object],
    ) -> None:
        self._on_message = on_message
        self._on_end = on_end
        self._on_subscribed = on_subscribed
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._packet_id = 0

    async def connect(self, host: str, port: int, username: str, password: str, client_id: str) -> None:
        """Raises MqttError: there is no hub, or it refuses."""
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, self._writer = await asyncio.open_connection(host, port)
                self._writer.write(_connect_packet(username, password, client_id))
                kind, body = await read_packet(reader)
        except (OSError, TimeoutError, EOFError) as error:
            self.close()
            raise MqttError("the hub has closed the connection, or does not answer") from error
        code = body[1] if kind == _CONNACK and len(body) > 1 else -1
        if code != 0:
            self.close()
            raise MqttError(f"refused: {_REFUSED.get(code, 'the answer is no CONNACK')}")
        self._tasks = [asyncio.create_task(self._read(reader)), asyncio.create_task(self._ping())]

    async def subscribe(self, topic_filter: str) -> None:
        """Raises MqttError: the connection has ended, or would: the hub ends it at a SUBSCRIBE to what is no Topic Filter."""
        if not _is_topic_filter(topic_filter):
            raise MqttError(
                "expected a Topic Filter: not empty, no NUL, + alone in its level, # alone in the last one, such as a/#"
            )
        self._packet_id = self._packet_id % 0xFFFF + 1
        body = struct.pack("!H", self._packet_id) + _text(topic_filter) + b"\0"
        await self._send(_packet(_SUBSCRIBE, body))

    async def publish(self, topic: str, payload: bytes, *, is_retained: bool) -> None:
        """Raises MqttError: the connection has ended, or would: the hub ends it at a PUBLISH to what is no Topic Name, and drops one to $."""
        if not topic or topic.startswith("$") or not {"+", "#", "\0"}.isdisjoint(topic):
            raise MqttError(
                "expected a Topic Name to publish to: not empty, not $ at the beginning, no +, # and NUL, such as a/b"
            )
        await self._send(_packet(_PUBLISH | int(is_retained), _text(topic) + payload))

    def close(self) -> None:
        """End the connection; nobody is told."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(OSError, RuntimeError):
                writer.write(_packet(_DISCONNECT, b""))
            writer.close()

    async def _send(self, packet: bytes) -> None:
        if self._writer is None:
            raise MqttError("it is not connected")
        try:
            self._writer.write(packet)
            async with asyncio.timeout(_SEND_S):
                await self._writer.drain()
        except (OSError, TimeoutError) as error:
            raise MqttError("the connection has ended") from error

    async def _read(self, reader: asyncio.StreamReader) -> None:
        why = "the hub has closed the connection"
        try:
            while True:
                kind, body = await read_packet(reader)
                if kind & 0xF0 == _PUBLISH:
                    self._on_message(_received(kind, body))
                elif kind == _SUBACK:
                    self._on_subscribed(body[-1] != _FAILED)
        except (OSError, EOFError):
            pass
        except (ValueError, IndexError, struct.error) as error:
            why = str(error) or "a packet cannot be read"
        self._tasks.clear()  # this one is the last
        self.close()
        self._on_end(why)

    async def _ping(self) -> None:
        while self._writer is not None:
            await asyncio.sleep(_KEEP_ALIVE_S / 2)
            try:
                await self._send(_packet(_PINGREQ, b""))
            except MqttError:
                return  # reading ends, too


async def read_packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Raises EOFError, ValueError: it is too long."""
    kind = (await reader.readexactly(1))[0]
    size = shift = 0
    while True:
        byte = (await reader.readexactly(1))[0]
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
        if shift > 21:
            raise ValueError("a packet has a malformed length")
    if size > _PACKET_BYTES:
        raise ValueError(f"a message has more than {_PACKET_BYTES} bytes: this page does not take it")
    return kind, await reader.readexactly(size)


def _received(kind: int, body: bytes) -> Received:
    """Read a PUBLISH of QoS 0: nothing else is subscribed to."""
    (length,) = struct.unpack_from("!H", body)
    payload = body[2 + length :]
    return Received(
        body[2 : 2 + length].decode("utf-8", "replace"),
        payload[:PAYLOAD_BYTES],
        len(payload),
        kind >> 1 & 3,
        bool(kind & 1),
    )


def _is_topic_filter(text: str) -> bool:
    """Say whether the hub takes it.

    >>> [_is_topic_filter(text) for text in ("a/+/#", "$share/g/#", "/", "a/#/b", "a+", "$share/g", "")]
    [True, True, True, False, False, False, False]
    """
    if text.startswith(_SHARE):
        group, _, text = text.removeprefix(_SHARE).partition("/")
        if not group or not _WILDCARDS.isdisjoint(group):
            return False
    *levels, last = text.split("/")
    if not text or "\0" in text or "#" in levels:
        return False
    return all(level in _WILDCARDS or _WILDCARDS.isdisjoint(level) for level in (*levels, last))


def _connect_packet(username: str, password: str, client_id: str) -> bytes:
    head = _text("MQTT") + bytes((4, 0xC2)) + struct.pack("!H", _KEEP_ALIVE_S)
    return _packet(_CONNECT, head + _text(client_id) + _text(username) + _text(password))


def _text(text: str) -> bytes:
    """Raises MqttError: it is longer than MQTT can send, or no text."""
    try:
        found = text.encode()
    except UnicodeEncodeError:
        raise MqttError("a name or topic has half of a character (a lone surrogate), expected text in UTF-8") from None
    if len(found) > 0xFFFF:
        raise MqttError("a name or topic has more than 65535 bytes")
    return struct.pack("!H", len(found)) + found


def _packet(kind: int, body: bytes) -> bytes:
    """Put kind and length before a body.

    >>> _packet(0xC0, b"").hex(), _packet(0x30, bytes(200))[:3].hex()
    ('c000', '30c801')
    """
    size, head = len(body), bytearray((kind,))
    while True:
        size, byte = size >> 7, size & 0x7F
        head.append(byte | 0x80 if size else byte)
        if not size:
            return bytes(head) + body
