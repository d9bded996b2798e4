"""What a worker's queues do when answers are lost, with the connection or with the store process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from iothub.base.errors import BackendError, ConflictError, NotFoundError
from iothub.testing.queue_contract import TENANT, made, one, positions
from iothub_services.queues.port import Append, Appended, Delivery, QueueLimits, QueueStore, TenantUsage
from iothub_services.queues.threads import Call
from iothub_services.queues.writing import QueueWrites
from iothub_services.store_process.batches import Batches
from iothub_services.store_process.connection import StoreConnection
from iothub_services.store_process.frames import framed, pack
from iothub_services.store_process.queues import PORT, VERBS, RemoteQueues
from iothub_services.store_process.sockets import address_of, new_socket, receive_frame
from iothub_services.store_process.verbs import Verb
from tests.support.hubs.store_processes import Patient, StoreProcess, cut_connection, store_process
from tests.support.operated_queues import operation_of


@pytest.fixture
def process(tmp_path: Path) -> Iterator[StoreProcess]:
    with store_process(tmp_path) as process:
        yield process


def lossy(process: StoreProcess, *verbs: str) -> RemoteQueues:
    """Queues whose answers to these verbs are lost once."""
    return RemoteQueues(process.path, connection=cut_connection(set(verbs), is_after=True))


def test_append_is_done_once_when_the_store_process_dies_with_its_answer(process: StoreProcess) -> None:
    """The file remembers it: the next store process gives the answer."""
    queues = lossy(process, "write")
    claim = made(queues, 1)
    batch = [one(1, 1), Append(b"", b"transient", 0, (Delivery(1, 2),))]
    with pytest.raises(BackendError) as raised:
        queues.append(batch)
    process.restart()

    assert raised.value.is_written
    assert raised.value.retryable
    assert queues.append(batch) == [Appended((1,)), Appended((2,))]
    assert positions(queues, 1, claim.epoch) == [1, 2]
    queues.close()


def test_rest_of_a_batch_is_done_once_when_some_of_it_was_given_up(process: StoreProcess) -> None:
    """The thread repeats a batch without what has waited too long, or one by one; new operations are done."""
    queues = lossy(process, "write")
    claim = made(queues, 1)
    first, second, third = one(1, 1), one(1, 2), one(1, 3)
    with pytest.raises(BackendError):
        queues.append([first, second])

    assert queues.append([second]) == [Appended((2,))]
    with pytest.raises(BackendError):
        queues.append([third])
    assert queues.append([third]) == [Appended((3,))]
    assert positions(queues, 1, claim.epoch) == [1, 2, 3]
    queues.close()


def test_group_that_failed_behind_its_appends_does_not_append_again(process: StoreProcess) -> None:
    """What the writer's thread repeats whole: appends and a creation before a verb that failed."""
    queues = lossy(process, "drop")
    claim = made(queues, 1)
    writes = QueueWrites(cast("QueueStore", queues))
    first, second = operation_of(one(1, 1)), operation_of(one(2, 2))
    ops = [first, Call("create", (TENANT, 2, QueueLimits(), 1)), Call("drop", (9,)), second]
    with pytest.raises(BackendError):
        writes(list(ops))

    assert writes(list(ops)) == [Appended((1,)), None, 0, Appended((1,))]
    assert positions(queues, 1, claim.epoch) == [1]
    with pytest.raises(ConflictError):
        queues.create(TENANT, 2, QueueLimits())
    queues.close()


def test_creation_whose_answer_was_lost_finds_its_own_queue(process: StoreProcess) -> None:
    """Its id is its own: the queue can be nobody else's."""
    queues = lossy(process, "create")
    cast("QueueStore", Patient(queues)).create(TENANT, 1, QueueLimits())

    assert queues.stats(1).tenant_id == TENANT
    queues.close()


def test_verbs_whose_answers_are_not_kept_may_come_again(process: StoreProcess) -> None:
    """They change nothing more; a claim takes the next epoch."""
    queues = lossy(process, "claim", "drop", "purge", "set_limits", "drop_tenant", "expire", "set_tenant_limits")
    patient = cast("QueueStore", Patient(queues))
    patient.create(TENANT, 1, QueueLimits())
    assert patient.claim(1, b"a").epoch == 2
    patient.append([one(1, 1)])
    patient.set_limits([(1, QueueLimits(9))])
    patient.set_tenant_limits(TENANT, 9, 0)
    assert patient.expire(1, 1).after is None
    assert patient.purge(1) == (0, 0)
    assert patient.drop(1) == 0
    assert patient.drop_tenant(TENANT) == 0
    with pytest.raises(NotFoundError):
        patient.stats(1)
    queues.close()


def test_limits_of_tenants_are_said_again_to_a_new_store_process(process: StoreProcess) -> None:
    """They are in its memory only. The sums are those of its files."""
    queues, other = RemoteQueues(process.path), RemoteQueues(process.path)
    made(queues, 1)
    queues.set_tenant_limits(TENANT, 1, 0)
    queues.append([one(1, 1)])
    process.restart()

    assert [answer.positions for answer in queues.append([one(1, 2)])] == [(-1,)]
    assert [answer.hit for answer in other.append([one(1, 3)])] == [("queued_messages",)]
    assert queues.tenant_usage(TENANT) == other.tenant_usage(TENANT) == TenantUsage(1, 2)
    queues.close()
    other.close()


def test_append_is_done_once_when_limits_are_said_again_to_the_next_store_process(process: StoreProcess) -> None:
    """Saying them settles the append before the question that is on its way."""
    queues = lossy(process, "write")
    claim = made(queues, 1)
    queues.set_tenant_limits(TENANT, 9, 0)
    batch = [one(1, 1)]
    with pytest.raises(BackendError):
        queues.append(batch)
    process.restart()

    assert queues.append(batch) == [Appended((1,))]
    assert positions(queues, 1, claim.epoch) == [1]
    queues.close()


def test_worker_hears_of_what_others_have_stored_with_its_next_answer(process: StoreProcess) -> None:
    """The sums of a tenant are those of all workers."""
    queues, other = RemoteQueues(process.path), RemoteQueues(process.path)
    made(queues, 1)
    other.append([one(1, 1)])
    assert queues.tenant_usage(TENANT) == TenantUsage(0, 0)
    queues.tails([1])

    assert queues.tenant_usage(TENANT) == TenantUsage(1, 2)
    queues.close()
    other.close()


def test_store_process_that_is_away_is_a_failing_store(process: StoreProcess) -> None:
    """Nothing was written, and it may work later; the text says what to do."""
    queues = RemoteQueues(process.path)
    made(queues, 1)
    process.close()

    for verb in (queues.probe, lambda: queues.append([one(1, 1)]), lambda: queues.tails([1])):
        with pytest.raises(BackendError, match="is not reached at") as raised:
            verb()
        assert raised.value.retryable
        assert not raised.value.is_written
        assert raised.value.remedy

    process.start()
    assert queues.tails([1]) == {1: 0}
    queues.probe()
    queues.close()


def test_requests_of_several_workers_share_a_commit(process: StoreProcess) -> None:
    """Whatever waits while a commit runs goes into the next one."""
    workers = [RemoteQueues(process.path) for _ in range(4)]
    for number, queues in enumerate(workers, 1):
        made(queues, number)
    before = process.ports[PORT].commits
    hold = process.commits.hold(5.0, 60.0)
    threads = [
        threading.Thread(target=queues.append, args=([one(number, number)],))
        for number, queues in enumerate(workers, 1)
    ]
    for thread in threads:
        thread.start()
    process.wait_for(4)
    process.commits.release(hold)
    for thread in threads:
        thread.join()

    assert process.ports[PORT].commits - before <= 2
    assert [queues.stats(number).messages for number, queues in enumerate(workers, 1)] == [1] * 4
    for queues in workers:
        queues.close()


def raw(process: StoreProcess, client: bytes = b"c" * 16, version: int = 1, port: str = PORT) -> socket.socket:
    """Connect by hand."""
    connection = new_socket()
    with address_of(process.path) as address:
        connection.connect(address)
    connection.sendall(framed(pack((version, port, client))))
    return connection


def test_request_that_was_not_read_before_its_client_came_again_is_never_done(process: StoreProcess) -> None:
    """Otherwise it would be done after the client had been told that it was not."""
    first = raw(process)
    receive_frame(first)
    first.sendall(framed(pack((1, "create", (TENANT, 1, QueueLimits(), 1))))[:-1])
    second = raw(process)
    receive_frame(second)
    with pytest.raises(BrokenPipeError):
        first.sendall(b"\x01")

    assert process.queues.existing([1]) == set()
    first.close()
    second.close()


@pytest.mark.parametrize(
    "hello", [pack((99, PORT, b"")), pack((1, "odd", b""))], ids=["another version", "an unknown port"]
)
def test_process_of_another_hub_is_refused_by_name(process: StoreProcess, hello: bytes) -> None:
    """It hears why."""
    connection = new_socket()
    with address_of(process.path) as address:
        connection.connect(address)
    connection.sendall(framed(hello))
    answer = receive_frame(connection)

    assert b"store process" in answer
    assert b"conflict" in answer
    connection.close()


def test_what_is_no_request_closes_the_connection_and_harms_nobody(process: StoreProcess) -> None:
    """A verb that there is not, arguments that do not fit, a length that is too large."""
    queues = RemoteQueues(process.path)
    made(queues, 1)
    for broken in (framed(pack((1, "odd", ()))), framed(pack((1, "drop", ("x",)))), b"\xff" * 4, framed(b"\xc1")):
        connection = raw(process)
        receive_frame(connection)
        connection.sendall(broken)
        with pytest.raises(OSError):
            receive_frame(connection)
        connection.close()

    assert queues.tails([1]) == {1: 0}
    queues.close()


def test_batches_keep_an_answer_that_comes_late(process: StoreProcess) -> None:
    """For the operations of the attempt that was lost, whichever of them come again."""
    connection = StoreConnection(process.path, PORT, VERBS, is_writer=True)
    batches: Batches[bytes, int] = Batches(connection, len)
    ops, asked = [b"a", b"b"], []

    def lost(new: list[bytes], keep: object) -> list[int]:
        keep([1, 2])  # type: ignore[operator]
        raise BackendError("lost", retryable=True, is_written=True)

    def fine(new: list[bytes], _keep: object) -> list[int]:
        asked.append(list(new))
        return [3] * len(new)

    with pytest.raises(BackendError):
        batches.do(ops, lost)
    new = b"c" * 2
    assert batches.do([ops[1], new], fine) == [2, 3]
    assert asked == [[new]]
    connection.close()


def test_every_verb_of_the_port_has_a_shape_for_each_argument() -> None:
    """The table is what both sides stand on."""
    assert {name for name, verb in VERBS.items() if verb.is_kept} == {"write"}
    assert all(
        isinstance(verb, Verb) and callable(verb.answer) and all(map(callable, verb.args)) for verb in VERBS.values()
    )


def test_answer_that_is_too_large_is_an_error_and_not_the_end_of_the_connection(
    process: StoreProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would accept it, however often it is asked for."""
    queues = RemoteQueues(process.path)
    claim = made(queues, 1)
    queues.append([one(1, 1, body=b"x" * 1_000)])
    monkeypatch.setattr("iothub_services.store_process.server.FRAME_BYTES", 500)

    with pytest.raises(BackendError, match="bytes, allowed are 500") as raised:
        queues.read(1, claim.epoch, 0, 10, 10_000)

    assert not raised.value.retryable
    assert queues.tails([1]) == {1: 1}
    queues.close()
