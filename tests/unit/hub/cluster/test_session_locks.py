"""The session directory of one worker: one at a time for each session, first come first served."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from iothub.hub.cluster.session_locks import SessionLocks


async def _hold(
    directory: SessionLocks, name: str, until: Deferred[None], recorded: list[str], client: str = "c"
) -> None:
    async with directory.holding(1, client):
        recorded.append(f"{name} in")
        await until
        recorded.append(f"{name} out")


def test_hold_of_a_free_session_waits_for_nothing() -> None:
    """The usual case takes no Deferred: the first step of the coroutine is already inside."""
    recorded: list[str] = []
    steps = _hold(SessionLocks(), "a", Deferred(), recorded)

    steps.send(None)

    assert recorded == ["a in"]
    steps.close()


def test_hold_passes_from_hand_to_hand_in_the_order_of_coming() -> None:
    """Three want the same session: each enters when the one before has left."""
    directory, recorded = SessionLocks(), list[str]()
    gates: dict[str, Deferred[None]] = {name: Deferred() for name in "abc"}
    for name, gate in gates.items():
        Deferred.fromCoroutine(_hold(directory, name, gate, recorded))

    for gate in gates.values():
        gate.callback(None)

    assert recorded == ["a in", "a out", "b in", "b out", "c in", "c out"]


def test_hold_of_another_session_is_not_kept_waiting() -> None:
    """The key is tenant and Client Identifier."""
    directory, recorded = SessionLocks(), list[str]()

    for client in ("c", "d"):
        Deferred.fromCoroutine(_hold(directory, client, Deferred(), recorded, client))

    assert recorded == ["c in", "d in"]


def test_hold_that_fails_lets_the_next_one_in() -> None:
    """Whatever ends inside, the lock is handed on; and nothing is remembered of a session that nobody holds."""
    directory, recorded = SessionLocks(), list[str]()
    gate: Deferred[None] = Deferred()
    failing = Deferred.fromCoroutine(_hold(directory, "a", gate, recorded))
    failing.addErrback(lambda failure: recorded.append(failure.type.__name__))
    waiting: Deferred[None] = Deferred()
    Deferred.fromCoroutine(_hold(directory, "b", waiting, recorded))

    gate.errback(ValueError())
    waiting.callback(None)

    assert recorded == ["a in", "b in", "ValueError", "b out"]
    assert not directory._held


def test_hold_serves_a_line_of_any_length() -> None:
    """A thousand that wait for one session are served one after the other, not one inside the other."""
    directory, recorded = SessionLocks(), list[str]()
    first: Deferred[None] = Deferred()
    Deferred.fromCoroutine(_hold(directory, "first", first, recorded))
    done: Deferred[None] = Deferred()
    done.callback(None)
    for number in range(1000):
        Deferred.fromCoroutine(_hold(directory, str(number), done, recorded))

    first.callback(None)

    assert recorded[-1] == "999 out"
    assert not directory._held
