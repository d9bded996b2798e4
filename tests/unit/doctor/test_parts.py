"""What is found of the machine, of the listeners and of the accounts, each in good order and not."""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from sqlalchemy import update

from iothub.base.errors import BackendError, ConfigError
from iothub.base.units import Endpoint
from iothub.config.datadir import DataDir
from iothub.config.sections import Cluster, Config, Events, HBase, Kafka, Listeners, Node, Queues, Sql, TcpListener
from iothub.doctor import accounts, hbase, kafka, listeners, machine
from iothub.doctor.all import checks
from iothub.doctor.findings import Check, Finding, State, run_checks
from iothub.peers import certificates
from iothub.testing.certificates import Authority
from iothub_services.metrics import probes
from iothub_services.quota.names import Quota
from iothub_tenants.accounts import plans, streams, tenants
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.streams import Wanted
from iothub_tenants.accounts.tables import plan
from tests.support.hbase.hbase_gateway import FakeGateway, framed, split_frames

NOBODY = Endpoint("127.0.0.1", 1)
KAFKA_ADVICE = "check kafka.brokers and the rest of [kafka]; see docs/guide/kafka.md#the-hub-does-not-reach-kafka"
TCP_OFF = Config(listeners=Listeners(tcp=TcpListener(port=None)))


def found(*chosen: Check) -> dict[str, Finding]:
    return {finding.name: finding for finding in run_checks(chosen, 10.0)}


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    directory = DataDir(tmp_path)
    directory.prepare()
    directory.finish()
    return directory


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield int(other.getsockname()[1])


def test_fresh_directory_is_in_order(data_dir: DataDir) -> None:
    findings = found(*machine.checks(data_dir, Config(), {data_dir.queues: 3}))

    assert {each.state for name, each in findings.items() if name not in ("clock", "file descriptors")} == {State.OK}
    assert findings["hub"].text == "not running on this data directory"
    assert findings["queues.db"].text.startswith("does not exist yet")
    assert findings["disk sync"].seconds is not None


def test_limit_of_descriptors_below_the_connections_is_a_warning() -> None:
    (low,) = machine.descriptors(Config(), 1024)
    (enough,) = machine.descriptors(Config(), 1 << 20)

    assert (low.state, low.text) == (State.WARN, "limit 1024, max_connections of all listeners 20000")
    assert low.advice == (
        "raise the limit to at least 20319 (LimitNOFILE in systemd, `ulimit -n`), or lower listeners.NAME.max_connections"
    )
    assert enough.state is State.OK


def test_limit_of_descriptors_with_which_no_hub_starts_is_a_failure() -> None:
    with pytest.raises(ConfigError, match="the limit of 20 file descriptors is too low"):
        list(machine.descriptors(Config(), 20))


def test_low_disk_is_a_warning(data_dir: DataDir) -> None:
    settings = replace(Config(), alarms=replace(Config().alarms, disk_free=1 << 50))

    finding = found(*machine.checks(data_dir, settings, {}))["data directory"]

    assert finding.state is State.WARN
    assert "alarms.disk_free" in finding.advice


def test_disk_on_which_no_hub_starts_is_a_failure(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless one runs: it has the room, and its alarms say what it lacks."""

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    finding = found(*machine.checks(data_dir, Config(), {}))["data directory"]
    assert (finding.state, "the disk is full" in finding.text) == (State.FAIL, True)

    lock = data_dir.lock("iothub serve")
    assert found(*machine.checks(data_dir, Config(), {}))["data directory"].state is State.OK
    lock.release()


def test_damaged_file_fails_with_what_to_do(data_dir: DataDir) -> None:
    data_dir.queues.write_bytes(b"not a database" * 100)

    finding = found(*machine.checks(data_dir, Config(), {data_dir.queues: 3}))["queues.db"]

    assert finding.state is State.FAIL
    assert "restore it from a backup" in finding.advice


def test_whole_file_shows_its_schema(data_dir: DataDir) -> None:
    with sqlite3.connect(data_dir.queues) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute("PRAGMA user_version = 3")
    connection.close()

    finding = found(*machine.checks(data_dir, Config(), {data_dir.queues: 3}))["queues.db"]

    assert (finding.state, finding.text) == (State.OK, "8.0 KiB, schema version 3")


def test_pepper_that_others_can_read_fails(data_dir: DataDir) -> None:
    os.chmod(data_dir.pepper_file, 0o644)

    assert "chmod 600" in found(*machine.checks(data_dir, Config(), {}))["pepper"].text


@pytest.mark.parametrize(
    ("last_heartbeat", "answer", "state", "text"),
    [
        (None, True, State.OK, "synchronised"),
        (None, None, State.OK, "the system does not say whether it is synchronised"),
        (990.0, False, State.WARN, "not synchronised with a time server"),
        (1100.0, True, State.WARN, "100 s behind the time at which a hub last ran here"),
    ],
)
def test_clock(last_heartbeat: float | None, answer: bool | None, state: State, text: str) -> None:
    """A clock that went back would have sessions and bans live on."""
    (finding,) = machine.clock(last_heartbeat, 1000.0, lambda: answer)

    assert (finding.state, finding.text) == (state, text)


def test_port_of_another_program_fails(data_dir: DataDir, taken_port: int) -> None:
    settings = Config(listeners=Listeners(tcp=TcpListener(port=taken_port)))

    finding = found(*listeners.checks(data_dir, settings))["listener tcp"]

    assert finding.state is State.FAIL
    assert f"ss -ltnp sport = :{taken_port}" in finding.advice


def test_port_of_a_named_listener_is_looked_at(data_dir: DataDir, taken_port: int) -> None:
    named = (("tcp.second", TcpListener(port=taken_port)),)
    settings = Config(listeners=Listeners(tcp=TcpListener(port=None), named=named))

    assert found(*listeners.checks(data_dir, settings))["listener tcp.second"].state is State.FAIL


def test_port_of_the_running_hub_is_in_order(data_dir: DataDir, taken_port: int) -> None:
    """The doctor works beside a hub."""
    settings = Config(listeners=Listeners(tcp=TcpListener(port=taken_port)))
    data_dir.write_hub({"tcp": f"127.0.0.1:{taken_port}"})
    lock = data_dir.lock("iothub serve")
    try:
        finding = found(*listeners.checks(data_dir, settings))["listener tcp"]
    finally:
        lock.release()

    assert (finding.state, finding.text) == (State.OK, f"127.0.0.1 port {taken_port}: the running hub listens there")


def test_certificate_that_ends_is_named(tmp_path: Path) -> None:
    """In good time, and when it is too late."""
    file = Path(Authority(tmp_path).issue("hub").cert_file)
    now = time.time()

    def state(in_s: float) -> State:
        (finding,) = listeners.certificate("tls", file, Config(), now + in_s)
        return finding.state

    end_s = probes.certificate_end(file) - now
    assert state(end_s - 31 * 86400) is State.OK
    assert state(end_s - 86400) is State.WARN
    assert state(end_s + 86400) is State.FAIL
    (broken,) = listeners.certificate("tls", tmp_path / "none.pem", Config(), now)
    assert broken.state is State.FAIL


def test_certificate_of_every_worker_is_looked_at(data_dir: DataDir) -> None:
    """Each has one of its own for its links."""
    settings = Config(node=Node(workers=3), cluster=Cluster(listen="hub-1:7883"))

    names = [check.name for check in listeners.checks(data_dir, settings)]

    assert [name for name in names if name.startswith("certificate ")] == [
        "certificate cluster",
        "certificate cluster w2",
        "certificate cluster w3",
    ]


def test_certificate_of_another_node_is_found(data_dir: DataDir) -> None:
    """As the start would find it; it is not lost in the days that it is valid."""
    settings = Config(node=Node(number=5, workers=2), cluster=Cluster(listen="hub-1:7883"))
    authority = certificates.make_authority()
    pem = certificates.issue(authority, 5, [], 365)
    for own in (data_dir, DataDir.of_worker(data_dir.path, 2)):
        own.cluster_files.mkdir(parents=True)
        (own.cluster_files / "ca.pem").write_bytes(authority.certificate)
        (own.cluster_files / "cert.pem").write_bytes(pem.certificate)
        (own.cluster_files / "key.pem").write_bytes(pem.key)

    findings = found(*(each for each in listeners.checks(data_dir, settings) if each.name.startswith("certificate ")))

    assert {name: finding.state for name, finding in findings.items()} == {
        "certificate cluster": State.OK,
        "certificate cluster w2": State.FAIL,
    }
    assert "is the certificate of node 5, this hub is node 6" in findings["certificate cluster w2"].text


def test_plan_that_inherits_from_none_is_a_warning(data_dir: DataDir) -> None:
    """Made before plans inherited: all that it does not name is unlimited. The built-in ones are meant so."""
    with closing(init_store(sqlite_url(data_dir.accounts))) as store:
        plans.create(store, "old", "connections=5 dry-run:connections=2 sessions=1")
        plans.create(store, "new")
        with store.write() as writer:
            writer.connection.execute(update(plan).where(plan.c.name == "old").values(parent=None))

        findings = found(accounts.check(data_dir, Config()))
        plans.set_plan(store, "old", parent="standard")
        corrected = found(accounts.check(data_dir, Config()))

    assert findings["plans"].state is State.WARN
    assert findings["plans"].text == (
        f"plan old inherits from no plan: the {len(Quota) - 2} limits that it does not name are unlimited"
    )
    assert findings["plans"].advice == "let it inherit: iothub plan set old --from standard"
    assert "plans" not in corrected


def test_accounts_that_are_lost_fail(data_dir: DataDir) -> None:
    finding = found(accounts.check(data_dir, Config()))["accounts"]

    assert finding.state is State.FAIL
    assert "restore a backup" in finding.text


def test_servers_that_do_not_answer_are_named_with_what_to_do() -> None:
    """Each gateway and broker by itself, and what stands behind them."""
    gateways = HBase(thrift=(NOBODY,))
    broker, _ = kafka.checks(Kafka(brokers=(NOBODY,), timeout_s=0.5), has_log=True, is_needed=lambda: True)

    findings = found(*hbase.checks(gateways, []), broker)

    assert findings["HBase gateway 127.0.0.1:1"].state is State.FAIL
    assert findings["HBase tables"].state is State.FAIL
    assert findings["HBase tables"].advice == "check hbase.thrift; see docs/guide/hbase.md#the-hub-does-not-reach-hbase"
    assert findings["Kafka broker 127.0.0.1:1"].advice == "check kafka.brokers"


def test_gateway_that_says_nothing_we_know_is_told_in_its_words(taken_port: int) -> None:
    """Somebody listens there: another program, or a gateway with other frames."""
    settings = HBase(thrift=(Endpoint("127.0.0.1", taken_port),), timeout_s=0.2)

    for finding in found(*hbase.checks(settings, [])).values():
        assert f"127.0.0.1:{taken_port} has not answered" in finding.text
        assert "hbase.thrift" in finding.advice


def test_silence_behind_a_gateway_is_told() -> None:
    """It says that it is there, and waits for the master."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answering = [threading.Thread(target=_say_only_that_it_is_there, args=(listener,)) for _ in range(4)]
        for each in answering:
            each.start()
        settings = HBase(thrift=(Endpoint("127.0.0.1", listener.getsockname()[1]),), timeout_s=0.3)
        findings = found(*hbase.checks(settings, []))
        listener.shutdown(socket.SHUT_RDWR)
        for each in answering:
            each.join(10)

    assert len(findings) == 2
    for finding in findings.values():
        assert "has not answered for 0.3 s" in finding.text


def _say_only_that_it_is_there(listener: socket.socket) -> None:
    gateway = FakeGateway()
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection:
                while octets := connection.recv(1 << 16):
                    (frame,), _ = split_frames(octets)
                    if b"getThriftServerType" in frame:
                        connection.sendall(framed(gateway.answer(frame)))


def test_cluster_that_refuses_is_told_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """It need not be started."""
    refused = BackendError("no answer (SaslAuthenticationFailedError)", retryable=True, remedy="said once")
    monkeypatch.setattr("iothub_services.events.kafka.cluster.KafkaCluster.admin", Mock(side_effect=refused))
    *_, cluster = kafka.checks(Kafka(brokers=(NOBODY,)), has_log=False, is_needed=lambda: True)

    finding = found(cluster)["Kafka"]

    assert (finding.text, finding.advice) == ("no answer (SaslAuthenticationFailedError)", KAFKA_ADVICE)


@pytest.mark.parametrize(("is_needed", "state"), [(True, State.FAIL), (False, State.WARN)])
def test_cluster_that_does_not_answer_is_told_with_what_to_do(is_needed: bool, state: State) -> None:
    """Where nothing is in Kafka, the hub starts and refuses nothing."""
    *_, cluster = kafka.checks(Kafka(brokers=(NOBODY,), timeout_s=0.5), has_log=False, is_needed=lambda: is_needed)

    finding = found(cluster)["Kafka"]

    assert (finding.state, finding.advice) == (state, KAFKA_ADVICE)


def test_kafka_is_needed_as_soon_as_there_is_a_stream(data_dir: DataDir) -> None:
    """Before that, and before there are accounts, only where the log is there."""
    settings = replace(TCP_OFF, kafka=Kafka(brokers=(NOBODY,), timeout_s=0.5))
    states = [found(*checks(data_dir, settings))["Kafka"].state]
    with closing(init_store(sqlite_url(data_dir.accounts))) as store:
        states.append(found(*checks(data_dir, settings))["Kafka"].state)
        tenants.create(store, "acme", is_closed=True)
        streams.create(store, "acme", Wanted("telemetry", "sensors/#"))
    states.append(found(*checks(data_dir, settings))["Kafka"].state)
    on_kafka = replace(settings, events=Events(driver="kafka"))
    states.append(found(*checks(DataDir(data_dir.path / "none"), on_kafka))["Kafka"].state)

    assert states == [State.FAIL, State.WARN, State.FAIL, State.FAIL]


@pytest.mark.parametrize(("brokers", "copies", "state"), [(3, 3, State.OK), (1, 1, State.OK), (1, 3, State.WARN)])
def test_cluster_with_fewer_brokers_than_copies_is_a_warning(brokers: int, copies: int, state: State) -> None:
    """No topic can be made there: a stream's, or the log's at the first start."""
    finding = kafka._answer("lists 0 topics", brokers, copies, 0.001)

    assert (finding.state, "kafka.replication" in finding.advice) == (state, state is State.WARN)


def test_one_gateway_of_several_may_be_away() -> None:
    """The hub goes to the next one."""
    findings = found(*hbase.checks(HBase(thrift=(NOBODY, Endpoint("127.0.0.1", 2))), []))

    assert findings["HBase gateway 127.0.0.1:1"].state is State.WARN


def test_only_what_is_configured_is_looked_at(data_dir: DataDir) -> None:
    """Somebody without HBase is not told about it."""
    on_servers = replace(
        TCP_OFF, events=Events(driver="kafka"), queues=Queues(driver="hbase"), kafka=Kafka(brokers=(NOBODY,))
    )

    plain = {check.name for check in checks(data_dir, TCP_OFF)}
    servers = {check.name for check in checks(data_dir, replace(on_servers, hbase=HBase(thrift=(NOBODY,))))}
    with_streams = {check.name for check in checks(data_dir, replace(TCP_OFF, kafka=Kafka(brokers=(NOBODY,))))}

    assert {"queues.db", "events.db", "state.db", "retained.db", "usage.db"} <= plain
    assert not any(name.startswith(("Kafka", "HBase", "listener")) for name in plain)
    assert servers - plain == {
        "Kafka",
        "Kafka broker 127.0.0.1:1",
        "HBase tables",
        "HBase gateway 127.0.0.1:1",
        "installation, HBase",
        "installation, Kafka",
        "streams",
    }
    assert plain - servers == {"queues.db", "events.db"}
    assert with_streams - plain == {"Kafka", "Kafka broker 127.0.0.1:1", "installation, Kafka", "streams"}


def test_before_init_servers_are_looked_at_and_no_files(tmp_path: Path) -> None:
    """A configuration alone: what it names can be tried before there are accounts."""
    (tmp_path / "iothub.toml").write_text("config_version = 1\n")
    url_file = tmp_path / "accounts.url"
    url_file.write_text("mysql+pymysql://iothub:secret@127.0.0.1:1/iothub")
    settings = replace(TCP_OFF, kafka=Kafka(brokers=(NOBODY,), timeout_s=0.5), sql=Sql(url_file=url_file))

    findings = found(*checks(DataDir(tmp_path), settings))

    assert findings["Kafka"].state is State.WARN
    assert set(findings) == {
        "configuration",
        "accounts",
        "data directory",
        "disk sync",
        "clock",
        "Kafka",
        "Kafka broker 127.0.0.1:1",
    }
    assert findings["data directory"].advice == "when the accounts answer, run: iothub init"
    assert findings["accounts"].text.startswith("the accounts database does not answer: Can't connect")
    assert findings["accounts"].advice.endswith(f"#the-hub-does-not-reach-the-server; the file is {url_file}")
    assert "secret" not in repr(findings)
