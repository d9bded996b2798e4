"""Any bytes in any split are packets or one MqttError, the same for each split, and at most one packet's bytes are kept."""

from __future__ import annotations

from collections.abc import Sequence

from iothub.mqtt.decoder import Decoder
from iothub.mqtt.errors import MqttError
from iothub.testing.packet_cases import PACKET_CASES
from iothub.testing.wire_bytes import connect, text

MAX_PACKET_BYTES = 4_096
_CONNECTS = (connect(3, 2, text("c")), connect(4, 2, text("c")), connect(5, 2, text("c")))
SEEDS: Sequence[bytes] = tuple(
    b"\x01" + (_CONNECTS[case.version - 3] if case.version else b"") + case.data for case in PACKET_CASES
)


def _outcome(chunks: Sequence[bytes]) -> tuple[list[object], object, str]:
    decoder = Decoder(MAX_PACKET_BYTES)
    packets: list[object] = []
    try:
        for chunk in chunks:
            packets += decoder.receive_data(chunk)
            assert decoder.buffered_bytes <= MAX_PACKET_BYTES
    except MqttError as error:
        return packets + list(error.packets), error.reason, str(error)
    return packets, None, ""


def target(data: bytes) -> None:
    """Take the size of the chunks from the first byte, a stream from the rest."""
    size = data[0] or 1 if data else 1
    stream = data[1:]
    whole = _outcome([stream])

    split = _outcome([stream[at : at + size] for at in range(0, len(stream), size)])

    assert split == whole, f"in chunks of {size}: {split}, in one piece: {whole}"
