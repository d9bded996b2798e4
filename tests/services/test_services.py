"""The real servers answer as servers do: one record through Kafka, one row through HBase's gateway, and both survive what tests do to them."""

from __future__ import annotations

import re
import socket
import time
import tomllib

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from ops.services.places import HOST
from ops.services.services import Services
from ops.services.thrift import Gateway, ThriftRefusedError
from tests.support.night import at_night
from tests.support.servers.kafka import broker, produce

POLL_S = 30.0


def _consume(services: Services, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=broker(services), auto_offset_reset="earliest", enable_auto_commit=False)
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        found: list[bytes] = []
        deadline = time.monotonic() + POLL_S
        while len(found) < count and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=200).values():
                found += [record.value for record in records]
        return found
    finally:
        consumer.close()


def _put(services: Services, table: bytes, row: bytes, value: bytes) -> None:
    with Gateway(services.ports.thrift) as gateway:
        gateway.call("mutateRow", table, row, [{2: b"f:a", 3: value}])


def _value(services: Services, table: bytes, row: bytes) -> object:
    with Gateway(services.ports.thrift) as gateway:
        rows = gateway.call("getRow", table, row)
    return rows[0][2][b"f:a"][1] if rows else None  # type: ignore[call-overload,index]


def test_kafka_keeps_a_record(services: Services, topic: str) -> None:
    """Produced with acks=all, consumed by assignment: as the event service will."""
    offset = produce(services, topic, b"hello")

    assert offset == 0
    assert _consume(services, topic, 1) == [b"hello"]


def test_kafka_makes_no_topic_by_itself(services: Services) -> None:
    """A topic that a typing error names must not come into being with one partition."""
    admin = KafkaAdminClient(bootstrap_servers=broker(services))
    consumer = KafkaConsumer(bootstrap_servers=broker(services))
    try:
        consumer.partitions_for_topic("smoke.nobody-made-this")
        names = admin.list_topics()
    finally:
        consumer.close()
        admin.close()

    assert "smoke.nobody-made-this" not in str(names)


def test_hbase_keeps_a_row(services: Services, table: bytes) -> None:
    """Through the Thrift gateway, framed, at the level of bytes."""
    _put(services, table, b"row", b"hello")

    assert _value(services, table, b"row") == b"hello"
    assert _value(services, table, b"other") is None


def test_gateway_refuses_with_the_name_of_the_java_class(services: Services) -> None:
    """Errors are told apart by it."""
    with Gateway(services.ports.thrift) as gateway, pytest.raises(ThriftRefusedError, match="TableNotFoundException"):
        gateway.call("getRow", b"no_such_table", b"row")


def test_gateway_takes_frames_above_its_own_limit(services: Services, table: bytes) -> None:
    """2 MiB is its default, and a batch of queues is larger."""
    _put(services, table, b"row", b"x" * (3 << 20))

    assert _value(services, table, b"row") == b"x" * (3 << 20)


def test_nobody_else_can_reach_them(services: Services) -> None:
    """No password stands in front of any of these ports."""
    ports = services.ports
    own = (
        ports.kafka,
        ports.kafka_controller,
        ports.thrift,
        ports.zookeeper,
        ports.hbase_master,
        ports.hbase_regionserver,
        ports.redis,
        ports.mariadb,
        ports.postgresql,
    )
    refused = 0
    for port in own:
        with socket.socket() as probe:
            refused += probe.connect_ex(("127.0.0.2", port)) != 0  # also this machine, but not where they listen

    assert refused == len(own)


def test_up_again_changes_nothing(services: Services) -> None:
    """`make services` when all runs: the same processes."""
    before = [(report.name, report.pid) for report in services.reports()]

    services.up()

    assert [(report.name, report.pid) for report in services.reports()] == before


def test_hub_settings_name_the_servers(services: Services) -> None:
    """What `make services` writes leads to where they are."""
    settings = tomllib.loads(services.places.hub_settings.read_text())

    assert settings["kafka"]["brokers"] == [broker(services)]
    assert settings["hbase"]["thrift"] == [f"127.0.0.1:{services.ports.thrift}"]


@pytest.mark.parametrize("killed", [("kafka",), *at_night(("kafka", "hbase"))], ids=" ".join)
def test_killed_servers_have_what_they_acknowledged(
    services: Services, topic: str, table: bytes, killed: tuple[str, ...]
) -> None:
    """Kill -9 right behind the acknowledgement; `up` returns when every region is back. HBase by day: `test_queues_hbase_faults.py`."""
    produce(services, topic, b"before")
    _put(services, table, b"row", b"before")
    for name in killed:
        services.kill(name)

    services.up()
    produce(services, topic, b"after")

    assert _consume(services, topic, 2) == [b"before", b"after"]
    assert _value(services, table, b"row") == b"before"


def test_paused_hbase_does_not_answer_and_goes_on(services: Services, table: bytes) -> None:
    """Paused is not closed: the connection is accepted by the kernel, and nobody answers on it."""
    _put(services, table, b"row", b"before")
    services.pause("hbase")
    with pytest.raises(TimeoutError), Gateway(services.ports.thrift, timeout_s=0.5) as gateway:
        gateway.call("getRow", table, b"row")

    services.resume("hbase")

    assert _value(services, table, b"row") == b"before"


def _zookeeper(services: Services, word: bytes) -> str:
    """Ask one of ZooKeeper's questions of four letters."""
    with socket.create_connection(("127.0.0.1", services.ports.zookeeper), POLL_S) as connection:
        connection.sendall(word)
        return connection.makefile().read()


def test_sessions_with_zookeeper_outlive_a_pause_of_two_minutes(services: Services) -> None:
    """Whose session has run out when a pause ends, ends itself: master, region server and gateway. The pauses themselves: `make nightly`."""
    output = _zookeeper(services, b"cons")
    timeouts_ms = [int(found) for found in re.findall(r"[(,]to=(\d+)", output)]

    assert len(timeouts_ms) >= 2, output
    assert min(timeouts_ms) >= 120_000, output


def test_second_gateway_shows_the_same_rows_and_can_go(services: Services, table: bytes) -> None:
    """For trying fail-over: its address is told, it is killed, and the first one does not notice."""
    services.up("gateway")
    output = services.addresses()
    with Gateway(services.ports.second_thrift) as gateway:
        gateway.call("mutateRow", table, b"row", [{2: b"f:a", 3: b"by the second"}])
    services.kill("gateway")

    assert _value(services, table, b"row") == b"by the second"
    assert set(output) - set(services.addresses()) == {
        ("HBase's second gateway", f"{HOST}:{services.ports.second_thrift}")
    }
