"""Acknowledgements that do not fit, by themselves."""

from __future__ import annotations

import pytest

from iothub.engine.receipts import Receipts
from iothub.testing.engine import Bench, ack, publish


def make_receipts(bench: Bench) -> Receipts:
    return Receipts(bench.plane.turn, bench.plane.outbound, bench.plane.emission)


def test_receipts_of_the_wrong_kind_are_protocol_errors() -> None:
    """PUBACK for QoS 2, PUBREC and PUBCOMP for QoS 1."""
    bench = Bench()
    client = bench.client("s", version=5)
    client.subscribe(b"a", 2)
    publisher = bench.client("p")
    publisher.send(publish(b"a", b"x", 1, 1) + publish(b"a", b"x", 2, 2))
    receipts = make_receipts(bench)

    assert not receipts.pubrec(client.session, client.connection, 1, 0)
    assert not receipts.pubcomp(client.session, 1)
    assert not receipts.puback(client.session, 2)


@pytest.mark.parametrize("version", [4, 5])
def test_receipts_answer_a_second_pubrec_by_pubrel(version: int) -> None:
    """Its sender has not seen the first PUBREL. One that refuses gets none [MQTT-4.3.3-4] [MQTT3-4.3.3-1]."""
    bench = Bench()
    client = bench.client("s", version=version)
    client.subscribe(b"a", 2)
    bench.client("p").send(publish(b"a", b"x", 2, 1))
    client.take()

    assert client.send(ack(0x50, 1)) == ack(0x62, 1)
    assert client.send(ack(0x50, 1)) == ack(0x62, 1)
    if version == 5:
        assert client.send(ack(0x50, 1, 0x80)) == b""
    assert client.send(ack(0x70, 1)) == b""
    assert client.session.window is not None
    assert client.session.window.in_flight == 0


def test_receipts_for_an_offline_session_do_nothing() -> None:
    """An answer of the store that comes after the client has gone."""
    bench = Bench()
    client = bench.client("s", queue_id=7)
    client.drop()

    make_receipts(bench).released(client.session, 1)

    assert client.take() == b""
