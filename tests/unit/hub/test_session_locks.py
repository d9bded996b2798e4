"""The session directory of one worker: one at a time for each session, first come first served."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from iothub.hub.session_locks import SessionLocks


async def _hold(directory: SessionLocks, name: str, until: Deferred[None], told: list[str], client: str = "c") -> None:
    async with directory.holding(1, client):
        told.append(f"{name} in")
        await until
        told.append(f"{name} out")


def test_hold_of_a_free_session_waits_for_nothing() -> None:
    """The usual case takes no Deferred: the first step of the coroutine is already inside."""
    told: list[str] = []
    steps = _hold(SessionLocks(), "a", Deferred(), told)

    steps.send(None)

    assert told == ["a in"]
    steps.close()


def test_hold_passes_from_hand_to_hand_in_the_order_of_coming() -> None:
    """Three want the same session: each enters when the one before has left."""
    directory, told = SessionLocks(), list[str]()
    gates: dict[str, Deferred[None]] = {name: Deferred() for name in "abc"}
    for name, gate in gates.items():
        Deferred.fromCoroutine(_hold(directory, name, gate, told))

    for gate in gates.values():
        gate.callback(None)

    assert told == ["a in", "a out", "b in", "b out", "c in", "c out"]


def test_hold_of_another_session_is_not_kept_waiting() -> None:
    """The key is tenant and Client Identifier."""
    directory, told = SessionLocks(), list[str]()

    for client in ("c", "d"):
        Deferred.fromCoroutine(_hold(directory, client, Deferred(), told, client))

    assert told == ["c in", "d in"]


def test_hold_that_fails_lets_the_next_one_in() -> None:
    """Whatever ends inside, the lock is handed on; and nothing is remembered of a session that nobody holds."""
    directory, told = SessionLocks(), list[str]()
    gate: Deferred[None] = Deferred()
    failing = Deferred.fromCoroutine(_hold(directory, "a", gate, told))
    failing.addErrback(lambda failure: told.append(failure.type.__name__))
    waiting: Deferred[None] = Deferred()
    Deferred.fromCoroutine(_hold(directory, "b", waiting, told))

    gate.errback(ValueError())
    waiting.callback(None)

    assert told == ["a in", "b in", "ValueError", "b out"]
    assert not directory._held


def test_hold_serves_a_line_of_any_length() -> None:
    """A thousand that wait for one session are served one after the other, not one inside the other."""
    directory, told = SessionLocks(), list[str]()
    first: Deferred[None] = Deferred()
    Deferred.fromCoroutine(_hold(directory, "first", first, told))
    done: Deferred[None] = Deferred()
    done.callback(None)
    for number in range(1000):
        Deferred.fromCoroutine(_hold(directory, str(number), done, told))

    first.callback(None)

    assert told[-1] == "999 out"
    assert not directory._held
