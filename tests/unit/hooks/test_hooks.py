"""The five places for plug-ins: free when empty, first opinion counts, a fault is a refusal and never the hub's end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest
import structlog
from structlog.testing import capture_logs

from iothub import hooks
from iothub.base.errors import ConfigError
from iothub.hooks import Attempt, Client, Happening, HookedPolicy, Hooks, PlugIn, Publication

CLIENT = Client("acme", "dev1", "c1")
ATTEMPT = Attempt("acme", "dev1", "c1", b"s3cret", "192.0.2.1:5", "tcp")
MESSAGE = Publication("a/b", b"hello", 1)


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[structlog.typing.EventDict]]:
    with capture_logs() as captured:
        yield captured  # type: ignore[misc]


def made(place: str, *functions: Callable[..., object]) -> Hooks:
    return Hooks([PlugIn(place, f"test:{number}", function) for number, function in enumerate(functions)])


def fail(*_arguments: object) -> object:
    raise RuntimeError("out of order")


def test_empty_places_are_none() -> None:
    """No cost when empty: the hub compares with None and goes on."""
    empty = Hooks()

    assert [getattr(empty, place) for place in hooks.PLACES] == [None] * 5


def authenticated(loaded: Hooks) -> object:
    assert loaded.authenticate is not None
    return asyncio.run(loaded.authenticate(ATTEMPT))  # type: ignore[arg-type]


@pytest.mark.parametrize("opinion", [True, False, None])
def test_authentication_may_be_plain_or_asynchronous(opinion: bool | None) -> None:
    async def later(_attempt: Attempt) -> bool | None:
        await asyncio.sleep(0)
        return opinion

    assert authenticated(made("authenticate", lambda _attempt: opinion)) is opinion
    assert authenticated(made("authenticate", later)) is opinion


def test_first_opinion_counts() -> None:
    assert authenticated(made("authenticate", lambda _: None, lambda _: False, lambda _: True)) is False


def test_failed_authentication_is_a_refusal(logs: list[structlog.typing.EventDict]) -> None:
    loaded = made("authenticate", fail, lambda _: True)

    assert authenticated(loaded) is False
    assert loaded.failures == 1
    assert logs[0]["event"] == "plug-in failed"
    assert (logs[0]["hook"], logs[0]["plug_in"]) == ("authenticate", "test:0")


@pytest.mark.parametrize("answer", [1, "yes", object()])
def test_answer_that_is_no_opinion_is_a_refusal(answer: object) -> None:
    """A truthy mistake must not grant access."""
    loaded = made("authorise", lambda *_: answer)

    assert loaded.authorise is not None
    assert loaded.authorise(CLIENT, "publish", "a") is False
    assert loaded.failures == 1


def test_failed_authorisation_is_a_denial() -> None:
    loaded = made("authorise", fail)

    assert loaded.authorise is not None
    assert loaded.authorise(CLIENT, "publish", "a") is False


@pytest.mark.parametrize("place", ["publish", "deliver"])
def test_payload_may_be_replaced_by_several(place: str) -> None:
    def louder(_client: Client, message: Publication) -> Publication:
        return replace(message, payload=message.payload + b"!")

    pass_on = getattr(made(place, louder, lambda _client, message: message, louder), place)

    assert pass_on(CLIENT, MESSAGE) == replace(MESSAGE, payload=b"hello!!")


@pytest.mark.parametrize("place", ["publish", "deliver"])
@pytest.mark.parametrize(
    "answer",
    [
        None,
        replace(MESSAGE, topic="other"),
        replace(MESSAGE, qos=2),
        replace(MESSAGE, is_retained=True),
        replace(MESSAGE, payload="text"),  # type: ignore[arg-type]
        b"bytes",
    ],
)
def test_anything_but_another_payload_drops_the_message(place: str, answer: object) -> None:
    """A rewritten topic would get past the access rules (mosquitto#3672)."""
    loaded = made(place, lambda *_: answer)

    assert getattr(loaded, place)(CLIENT, MESSAGE) is None
    assert loaded.failures == (answer is not None)


@pytest.mark.parametrize("place", ["publish", "deliver"])
def test_failed_filter_drops_the_message(place: str) -> None:
    assert getattr(made(place, fail), place)(CLIENT, MESSAGE) is None


def test_lifecycle_reaches_everybody_past_a_failure() -> None:
    heard: list[Happening] = []
    loaded = made("lifecycle", fail, heard.append)
    happening = Happening("session.connected", "acme", "dev1", "c1")

    assert loaded.lifecycle is not None
    loaded.lifecycle(happening)

    assert heard == [happening]
    assert loaded.failures == 1


def test_secret_of_an_attempt_is_not_shown() -> None:
    assert "s3cret" not in repr(ATTEMPT)


class Closed:
    """A policy that allows what it receives and no publishing."""

    version = 7

    def may_publish(self, topic: bytes) -> bool:
        return False

    def may_receive(self, topic: bytes) -> bool:
        return True


def test_hooked_policy_asks_the_plug_in_first() -> None:
    def opinion(client: Client, action: str, topic: str) -> bool | None:
        return {"publish": True, "receive": False}[action] if topic == "über/x" else None

    policy = HookedPolicy(Closed(), opinion, CLIENT)
    topic = "über/x".encode()

    assert (policy.may_publish(topic), policy.may_receive(topic)) == (True, False)
    assert (policy.may_publish(b"a"), policy.may_receive(b"a")) == (False, True)
    assert (policy.version, policy.publishes_everything, policy.receives_everything) == (7, False, False)


def test_no_plug_in_lets_a_client_publish_to_the_hubs_own_topics() -> None:
    policy = HookedPolicy(Closed(), lambda _client, _action, _topic: True, CLIENT)

    assert [policy.may_publish(topic) for topic in (b"a", b"$SYS/x", b"$events/x", b"$")] == [True, False, False, False]
    assert policy.may_receive(b"$events/x")


def test_installed_plug_ins_are_loaded_by_place() -> None:
    loaded = hooks.load([EntryPoint("lifecycle", "builtins:print", hooks.GROUP)])

    assert [(plug.place, plug.origin) for plug in loaded.plug_ins] == [("lifecycle", "builtins:print")]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("authorize", "builtins:print", "unknown hook 'authorize', expected one of authenticate, authorise"),
        ("publish", "no_such_module:x", "cannot be loaded: ModuleNotFoundError"),
        ("publish", "builtins:no_such_name", "cannot be loaded: AttributeError"),
        ("publish", "sys:maxsize", "expected a function for hook 'publish'"),
    ],
)
def test_plug_in_that_cannot_work_stops_the_start(name: str, value: str, expected: str) -> None:
    """A hub without its guard must not start."""
    with pytest.raises(ConfigError) as caught:
        hooks.load([EntryPoint(name, value, hooks.GROUP)])

    assert expected in str(caught.value)
    assert value in str(caught.value)


def test_nothing_is_installed_with_the_hub_itself() -> None:
    assert hooks.load().plug_ins == ()
