"""The command table: asked once, done once, answered, or withdrawn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iothub.base.errors import ConflictError, InterruptedWorkError, IotHubError, NotFoundError, UnavailableError
from iothub.testing.clock import ManualClock
from iothub_tenants.accounts import commands, tenants
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.accounts.commands import CommandState, WaitLimits
from iothub_tenants.accounts.store import AccountStore, ChangeKind


@pytest.fixture(autouse=True)
def _tenant(store: AccountStore) -> None:
    tenants.create(store, "acme")


def hub(store: AccountStore, reply: Callable[[commands.Command], None]) -> Callable[[float], None]:
    """A hub that works while the caller pauses."""

    def pause(_seconds: float) -> None:
        for command in commands.take_queued(store):
            reply(command)

    return pause


def test_answer_of_the_hub_is_returned(store: AccountStore) -> None:
    """With the arguments that were given."""
    seen: list[commands.Command] = []

    def reply(command: commands.Command) -> None:
        seen.append(command)
        commands.answer(store, command.id, {"purged": 3})

    answer = commands.call(store, "acme", "queue.purge", {"client": "c1"}, WaitLimits(pause=hub(store, reply)))

    assert answer == {"purged": 3}
    assert (seen[0].tenant, seen[0].verb, seen[0].argument) == ("acme", "queue.purge", {"client": "c1"})


def test_refusal_of_the_hub_is_of_the_same_class(store: AccountStore) -> None:
    """So the exit code is the same as without a hub."""
    for error in (
        NotFoundError("no session c1"),
        ConflictError("held"),
        UnavailableError("closed"),
        IotHubError("odd"),
    ):
        reply = lambda command, error=error: commands.fail(store, command.id, error)  # noqa: E731

        with pytest.raises(type(error), match=str(error)) as refusal:
            commands.call(store, "acme", "session.discard", {}, WaitLimits(pause=hub(store, reply)))
        assert refusal.value.exit_code == error.exit_code


def test_command_without_a_hub_is_withdrawn(store: AccountStore, clock: ManualClock) -> None:
    """It will not be done by a hub that starts later."""
    with pytest.raises(UnavailableError, match="withdrawn"):
        commands.call(store, "acme", "queue.purge", {}, WaitLimits(2, pause=clock.advance))

    assert commands.take_queued(store) == []


def test_slow_command_goes_on(store: AccountStore, clock: ManualClock) -> None:
    """The caller learns that it is under way; a late answer is no error."""
    taken: list[int] = []

    def pause(seconds: float) -> None:
        taken.extend(command.id for command in commands.take_queued(store))
        clock.advance(seconds)

    with pytest.raises(UnavailableError, match="and continues it"):
        commands.call(store, "acme", "queue.purge", {}, WaitLimits(1, pause=pause))
    commands.answer(store, taken[0], {})

    assert commands.show(store, taken[0]).state is CommandState.DONE


def test_caller_waits_on_as_long_as_he_hears_of_progress(store: AccountStore, clock: ManualClock) -> None:
    """Three times as long as he would wait in silence; and he is told."""
    heard: list[commands.Json] = []
    taken: list[int] = []

    def pause(_seconds: float) -> None:
        clock.advance(0.9)
        taken.extend(command.id for command in commands.take_queued(store))
        if len(heard) == 3:
            commands.answer(store, taken[0], {"messages": 30})
        else:
            commands.progress(store, taken[0], {"done": len(heard) * 10, "total": 30})

    answer = commands.call(store, "acme", "retain.delete", {}, WaitLimits(1, on_progress=heard.append, pause=pause))

    assert answer == {"messages": 30}
    assert heard == [{"done": done, "total": 30} for done in (0, 10, 20)]
    heard.clear()
    taken.clear()
    with pytest.raises(UnavailableError, match=r"within 3 s: the hub has not finished the command \(0 of 30\)"):
        commands.call(store, "acme", "retain.delete", {}, WaitLimits(1, 2.5, on_progress=None, pause=pause))


def test_ctrl_c_leaves_the_hub_to_what_it_does(store: AccountStore) -> None:
    """And withdraws what no hub has begun; either is said."""

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    def begin_and_interrupt(_seconds: float) -> None:
        (command,) = commands.take_queued(store)
        commands.progress(store, command.id, {"done": 256, "total": 1000})
        raise KeyboardInterrupt

    with pytest.raises(InterruptedWorkError, match=r"^interrupted: no hub took the command, and it was withdrawn"):
        commands.call(store, "acme", "retain.delete", {}, WaitLimits(pause=interrupt))
    assert commands.take_queued(store) == []
    with pytest.raises(InterruptedWorkError, match=r"\(256 of 1000\), and continues it"):
        commands.call(store, "acme", "retain.delete", {}, WaitLimits(pause=begin_and_interrupt))
    assert [command.answer for command in commands.under_way(store)] == [{"done": 256, "total": 1000}]


def test_progress_of_what_has_ended_changes_nothing(store: AccountStore) -> None:
    command_id = commands.enqueue(store, "acme", "retain.delete", {})
    commands.take_queued(store)
    commands.answer(store, command_id, {"messages": 3})

    commands.progress(store, command_id, {"done": 1, "total": 3})

    assert commands.show(store, command_id).answer == {"messages": 3}
    assert commands.under_way(store) == []


def test_answer_in_the_last_moment_counts(store: AccountStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It arrives between the last look and the withdrawal."""
    command_id = commands.enqueue(store, "acme", "queue.purge", {})
    show = commands.show

    def late(store: AccountStore, command_id: int) -> commands.Command:
        found = show(store, command_id)
        commands.take_queued(store)
        commands.answer(store, command_id, {"purged": 1})
        return found

    monkeypatch.setattr(commands, "show", late)

    assert commands.wait(store, command_id, WaitLimits(0)).answer == {"purged": 1}


def test_command_is_taken_once(store: AccountStore) -> None:
    """Oldest first, a few at a time."""
    ids = [commands.enqueue(store, "", "status", {"n": number}) for number in range(3)]

    taken = [[command.id for command in commands.take_queued(store, limit=2)] for _ in range(3)]

    assert taken == [ids[:2], ids[2:], []]


def test_command_is_announced_in_the_change_log(store: AccountStore) -> None:
    """So the hub needs no second poll; a tenant's version stays as it is."""
    watcher = ChangeWatcher(store)

    command_id = commands.enqueue(store, "acme", "queue.purge", {})

    (change,) = watcher.poll()
    assert (change.kind, change.subject) == (ChangeKind.COMMAND, str(command_id))


def test_unknown_tenant_or_command_is_not_found(store: AccountStore) -> None:
    """Before anything is queued."""
    with pytest.raises(NotFoundError):
        commands.enqueue(store, "nobody", "queue.purge", {})
    with pytest.raises(NotFoundError, match="no command 99"):
        commands.show(store, 99)


def test_starting_hub_fails_what_its_predecessor_was_doing(store: AccountStore) -> None:
    """Whoever waits for it learns that it may or may not be done."""
    running = commands.enqueue(store, "acme", "queue.purge", {})
    commands.take_queued(store)
    queued = commands.enqueue(store, "acme", "queue.purge", {})

    assert commands.sweep(store, is_starting=True) == 1

    assert commands.show(store, running).state is CommandState.FAILED
    assert commands.show(store, queued).state is CommandState.QUEUED


def test_stale_commands_fail_and_old_ones_are_forgotten(store: AccountStore, clock: ManualClock) -> None:
    """A minute without a hub; an hour after the end."""
    command_id = commands.enqueue(store, "acme", "queue.purge", {})
    clock.advance(commands.STALE_S + 1)

    assert commands.sweep(store) == 1
    clock.advance(commands.KEEP_S + 1)
    commands.sweep(store)

    with pytest.raises(NotFoundError):
        commands.show(store, command_id)


def test_command_is_left_to_the_hub_that_is_meant(store: AccountStore) -> None:
    """Where several hubs use the accounts; a hub that is alone takes everything."""
    meant = commands.enqueue(store, "", "ping", {commands.NODE: 2})
    anybodys = commands.enqueue(store, "acme", "queue.purge", {})

    assert [command.id for command in commands.take_queued(store, node=1)] == [anybodys]
    assert [command.id for command in commands.take_queued(store, node=2)] == [meant]
    commands.enqueue(store, "", "ping", {commands.NODE: 3})
    assert len(commands.take_queued(store)) == 1


def test_command_that_was_passed_on_is_another_hubs(store: AccountStore) -> None:
    """With what was found; every hub hears of it again."""
    command_id = commands.enqueue(store, "acme", "ban.list", {"limit": 1})
    commands.take_queued(store, node=1)
    watcher = ChangeWatcher(store)

    commands.pass_on(store, command_id, 1, {"bans": []})

    assert [change.subject for change in watcher.poll()] == [str(command_id)]
    assert commands.take_queued(store, node=1) == []
    (taken,) = commands.take_queued(store, node=2)
    assert taken.argument == {"limit": 1, commands.PASSED: [1], commands.SO_FAR: {"bans": []}}
    commands.pass_on(store, command_id, 2, {})
    assert commands.show(store, command_id).argument[commands.PASSED] == [1, 2]
