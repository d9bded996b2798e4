"""Bytes as they arrive to packets: the incremental `Decoder` of one connection.

Knows no socket and no session. It keeps what the codec must know of a connection: the version, and that CONNECT comes first and once.
"""

from __future__ import annotations

from iothub.base.errors import LocalProtocolError
from iothub.mqtt.constants import STANDARD_LIMITS, UNKNOWN_VERSION, Limits, PacketType, Role
from iothub.mqtt.decode import decode_packet
from iothub.mqtt.errors import MqttError, ProtocolError
from iothub.mqtt.fixed_header import check_first_byte, check_size, read_remaining_length
from iothub.mqtt.packets import Connect, Packet

__all__ = ["Decoder", "decode_packet"]


class Decoder:
    """Turns the bytes of one direction of a connection into packets, however they are split.

    `version` None: the first packet must be CONNECT and sets it (role SERVER only). `max_packet_bytes` counts the Fixed Header.

    Invariants: any split of the same bytes gives the same packets and the same error; between calls at most one incomplete packet is
    kept, never more than `max_packet_bytes`; after an error every call raises its text and Reason again.
    """

    __slots__ = ("_buffer", "_error", "_limits", "_missing_upto", "_role", "_version", "max_packet_bytes")

    def __init__(
        self,
        max_packet_bytes: int,
        version: int | None = None,
        role: Role = Role.SERVER,
        limits: Limits = STANDARD_LIMITS,
    ) -> None:
        if version is None and role is Role.CLIENT:
            raise LocalProtocolError("a client's decoder needs the version that its CONNECT asked for")
        self.max_packet_bytes = max_packet_bytes
        self._version = version or UNKNOWN_VERSION
        self._role = role
        self._limits = limits
        self._buffer = bytearray()
        self._missing_upto = 1  # the buffer is looked at again when it has this many bytes
        self._error: MqttError | None = None

    @property
    def version(self) -> int:
        """Protocol Level of the connection, 0 before CONNECT."""
        return self._version

    @property
    def buffered_bytes(self) -> int:
        """How much of an incomplete packet is kept."""
        return len(self._buffer)

    def receive_data(self, data: bytes) -> list[Packet]:
        """Take the next bytes and return the packets that they complete. O(len(data)) over the life of the decoder.

        Raises: MqttError; the packets completed by the same data before the refused one are its `packets`.
        """
        if self._error is not None:
            raise MqttError(str(self._error), self._error.reason, version=self._error.version)
        packets: list[Packet] = []
        try:
            self._receive(data, packets)
        except MqttError as error:
            self._buffer.clear()
            error.packets = tuple(packets)
            self._error = error
            raise
        return packets

    def _receive(self, data: bytes, packets: list[Packet]) -> None:
        self._buffer += data
        if len(self._buffer) < self._missing_upto:
            return
        start = 0
        while (end := self._next(start, packets)) is not None:
            start = end
        del self._buffer[:start]
        self._missing_upto -= start

    def _next(self, start: int, packets: list[Packet]) -> int | None:
        """Decode the packet at `start` and return where it ends, or None while it is incomplete.

        Everything the Fixed Header can tell is asked before the body is waited for.
        """
        buffer = self._buffer
        self._missing_upto = start + 1
        if start >= len(buffer):
            return None
        header = buffer[start]
        self._check_header(header)
        found = read_remaining_length(buffer, start + 1, self._version)
        if found is None:
            self._missing_upto = len(buffer) + 1
            return None
        length, body = found
        end = body + length
        check_size(end - start, self.max_packet_bytes)
        if end > len(buffer):
            self._missing_upto = end
            return None
        packet = decode_packet(header, bytes(buffer[body:end]), self._version, self._role, self._limits)
        if isinstance(packet, Connect):
            self._version = packet.version
        packets.append(packet)
        return end

    def _check_header(self, header: int) -> None:
        if header >> 4 == PacketType.CONNECT and self._version != UNKNOWN_VERSION:  # [MQTT-3.1.0-2] [MQTT3-3.1.0-2]
            raise ProtocolError("CONNECT was sent a second time")
        check_first_byte(header, self._version, self._role)
