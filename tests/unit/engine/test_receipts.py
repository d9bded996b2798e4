"""Acknowledgements that do not fit, by themselves."""

from __future__ import annotations

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

    assert not receipts.pubrec(client.session, client.connection, 2, 0)
    assert not receipts.pubcomp(client.session, 2)
    assert not receipts.puback(client.session, 3)


def test_receipts_repeat_pubrel_for_old_clients_only() -> None:
    """A second PUBREC: 3.x gets its PUBREL again, 5.0 does not repeat on a live connection [MQTT-4.4.0-1]."""
    bench = Bench()
    publisher = bench.client("p")
    for version, again in ((4, ack(0x62, 2)), (5, b"")):
        client = bench.client(f"s{version}", version=version)
        client.subscribe(b"a/%d" % version, 2)
        publisher.send(publish(b"a/%d" % version, b"x", 2, version))
        client.take()

        assert client.send(ack(0x50, 2)) == ack(0x62, 2)
        assert client.send(ack(0x50, 2)) == again


def test_receipts_for_an_offline_session_do_nothing() -> None:
    """An answer of the store that comes after the client has gone."""
    bench = Bench()
    client = bench.client("s", queue_id=7)
    client.drop()

    make_receipts(bench).released(client.session, 1)

    assert client.take() == b""
