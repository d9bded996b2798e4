"""Any process of a hub with several workers may be killed: the others go on, and nothing that was acknowledged is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from tests.integration.workers.conftest import start, workers_of
from tests.support.clients.clients import unique
from tests.support.clients.packets import PUBACK, PUBCOMP, PUBREC, PUBREL
from tests.support.hubs.hub import Hub
from tests.support.hubs.workers import FIRST, SECOND, Workers, children, is_alive
from tests.support.waiting import PATIENCE_S, until


def test_clients_of_a_killed_worker_go_on_at_the_other(own: Workers) -> None:
    """What was acknowledged is there once, and the worker comes back."""
    topic, name = unique(), unique()
    reader = own.join(FIRST, client_id=name, keep=True)
    reader.subscribe((topic, 2))
    writer = own.join(SECOND, client_id=unique(), device="dev2", keep=True)
    reader.drop()
    for number in range(1, 21):
        writer.publish(topic, str(number).encode(), 1 + number % 2, number)
    killed = own.pid(SECOND)

    os.kill(killed, signal.SIGKILL)
    writer.expect_closed()
    again = own.rejoin(writer.client_id, device="dev2", keep=True)
    again.publish(topic, b"21", 2, 21)

    assert again.connack.session_present
    back = own.rejoin(name, keep=True)
    assert back.payloads(21) == [str(number).encode() for number in range(1, 22)]
    back.nothing()
    until(lambda: own.pid(SECOND) != killed and own.states() == {FIRST: "up", SECOND: "up"}, "the worker")


def test_worker_that_is_killed_while_it_drains_lets_nobody_in_when_it_is_back(own: Workers) -> None:
    """Until it is resumed; the other worker serves all."""
    before = own.pid(SECOND)
    own.hub.run("cluster", "drain", "1")
    os.kill(before, signal.SIGKILL)
    until(lambda: not is_alive(before), "the end of the process")
    until(lambda: own.states() == {FIRST: "up", SECOND: "draining"}, "the next process")

    assert {own.worker_of(own.join(FIRST).client_id) for _ in range(8)} == {FIRST}
    own.hub.run("cluster", "resume", "1")
    own.join(SECOND).ping()


def test_unfinished_exchanges_of_a_killed_worker_are_finished_once(own: Workers) -> None:
    """QoS 2: what had its PUBREC there is not published again when it comes again."""
    topic, name = unique(), unique()
    reader = own.join(FIRST, keep=True)
    reader.subscribe((topic, 2))
    writer = own.join(SECOND, client_id=name, device="dev2", keep=True)
    for number in range(1, 11):
        writer.send(writer.publish_bytes(topic, str(number).encode(), 2, number))
    for _ in range(10):
        writer.expect(PUBREC)

    os.kill(own.pid(SECOND), signal.SIGKILL)
    writer.expect_closed()
    again = own.rejoin(name, device="dev2", keep=True)
    for number in range(1, 11):
        again.send(again.publish_bytes(topic, str(number).encode(), 2, number, dup=True))
    for _ in range(10):
        again.ack(PUBREL, again.expect(PUBREC).packet_id)
    for _ in range(10):
        again.expect(PUBCOMP)

    assert reader.payloads(10) == [str(number).encode() for number in range(1, 11)]
    reader.nothing()


def test_publishers_wait_while_the_store_process_is_away(own: Workers) -> None:
    """Nobody is closed; what was stored is still there, and what waits is stored once."""
    topic, name = unique(), unique()
    reader = own.join(FIRST, client_id=name, keep=True)
    reader.subscribe((topic, 2))
    reader.disconnect()
    writers = [own.join(place, device="dev2", keep=True) for place in (FIRST, SECOND)]
    writers[0].publish(topic, b"before", 1, 1)
    killed = own.store_pid()

    os.kill(killed, signal.SIGKILL)
    for number, writer in enumerate(writers):
        writer.send(writer.publish_bytes(topic, b"during", 1 + number, 2))
    assert writers[0].expect(PUBACK, timeout=PATIENCE_S).packet_id == 2
    assert writers[1].expect(PUBREC, timeout=PATIENCE_S).packet_id == 2
    for number, writer in enumerate(writers):
        writer.publish(topic, b"after", 1 + number, 3)

    back = own.join(SECOND, client_id=name, keep=True)
    assert sorted(back.payloads(5)) == sorted([b"before", b"during", b"during", b"after", b"after"])
    back.nothing()
    assert own.store_pid() != killed


def test_processes_of_a_killed_supervisor_end_and_a_new_start_is_possible_at_once(own: Workers) -> None:
    """Also while one of them hangs."""
    topic, name = unique(), unique()
    reader = own.join(FIRST, client_id=name, keep=True)
    reader.subscribe((topic, 1))
    reader.disconnect()
    own.join(SECOND, device="dev2").publish(topic, b"stored", 1, 1)
    hub = own.hub
    assert hub.process is not None
    processes = children(hub.process.pid)
    assert len(processes) == 3
    os.kill(own.pid(SECOND), signal.SIGSTOP)

    hub.kill()
    until(lambda: not any(map(is_alive, processes)), "their end")
    log = len(hub.log)
    hub.start()

    until(lambda: '"workers": 2' in hub.log[log:], "both workers")
    back = own.rejoin(name, keep=True)
    assert (back.connack.session_present, back.payloads()) == (True, [b"stored"])
    assert "waiting to see whether that hub is running" not in hub.log


def test_messages_under_way_survive_kills_of_every_process(own: Workers) -> None:
    """A publisher that sends each message until it is acknowledged, while worker, store process and worker are killed in turn."""
    topic = unique()
    reader = own.join(FIRST, client_id="reader", keep=True)
    reader.subscribe((topic, 2))
    reader.disconnect()
    sent = 0
    for victim in (lambda: own.pid(FIRST), own.store_pid, lambda: own.pid(SECOND)):
        for _ in range(5):
            sent += 1
            _publish_until_acknowledged(own, topic, sent)
        os.kill(victim(), signal.SIGKILL)
        for _ in range(5):
            sent += 1
            _publish_until_acknowledged(own, topic, sent)
        until(lambda: set(own.states().values()) == {"up"}, "all workers")

    back = own.rejoin("reader", keep=True)
    assert back.payloads(sent) == [str(number).encode() for number in range(1, sent + 1)]
    back.nothing()


def _publish_until_acknowledged(workers: Workers, topic: str, number: int) -> None:
    """QoS 2, as a client does: the same packet again after each reconnect, until its exchange is complete."""
    is_released, deadline = False, time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(AssertionError, OSError, EOFError):
            writer = workers._join(5, "writer", device="dev2", keep=True)
            if not is_released:
                writer.send(writer.publish_bytes(topic, str(number).encode(), 2, number, dup=True))
                writer.expect(PUBREC, timeout=PATIENCE_S)
                is_released = True
            writer.ack(PUBREL, number)
            writer.expect(PUBCOMP, timeout=PATIENCE_S)
            writer.disconnect()
            return
        time.sleep(0.1)
    raise AssertionError(f"message {number} was never acknowledged")


def test_number_of_workers_changes_at_a_start(make_hub: Callable[[], Hub]) -> None:
    """Sessions and queues stay: from two workers to one process, and back."""
    hub = make_hub()
    topic = unique()
    for workers, position in (("2", 1), ("1", 2), ("2", 3)):
        hub.settings["node.workers"] = workers
        hub.start()
        with workers_of(hub) as there:
            reader = there._join(5, "reader", keep=True)
            assert reader.connack.session_present == (position > 1)
            if position > 1:
                assert reader.payloads() == [str(position - 1).encode()]
            reader.subscribe((topic, 1))
            reader.disconnect()
            there._join(5, device="dev2").publish(topic, str(position).encode(), 1, 1)
        assert hub.stop() == 0


def test_kill_of_everything_loses_no_session(make_hub: Callable[[], Hub]) -> None:
    hub = make_hub()
    start(hub)
    with workers_of(hub) as there:
        reader = there.join(FIRST, client_id="reader", keep=True)
        reader.subscribe(("a", 1))
        there.join(SECOND, device="dev2").publish("a", b"1", 1, 1)
        assert reader.payloads() == [b"1"]
        hub.kill()
        reader.expect_closed()
        hub.start()
        again = there._join(5, "reader", keep=True)
        assert again.connack.session_present
