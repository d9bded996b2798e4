"""The master among several servers, or by the word of the Sentinels."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iothub.base.units import Endpoint
from iothub_services.redis.calls import ADVICE, RedisUnavailableError, Reply
from iothub_services.redis.places import OpenWire, Places
from iothub_services.redis.wire import Wire, WireOptions
from tests.support.servers.fake_redis import FakeRedis

ONE, TWO, THREE = (Endpoint("redis", port) for port in (1, 2, 3))


def opening(**servers: FakeRedis) -> OpenWire:
    by_port = {"one": 1, "two": 2, "three": 3}
    chosen = {by_port[name]: server for name, server in servers.items()}

    def open_wire(endpoint: Endpoint, options: WireOptions) -> Wire:
        return chosen[endpoint.port].open_wire(endpoint, options)

    return open_wire


def test_single_server_is_not_asked_for_its_role() -> None:
    """Who sets one address means it."""
    server = FakeRedis(role=b"slave")

    Places([ONE], WireOptions(), open_wire=opening(one=server)).connect()

    assert server.pipelines == []


def test_first_master_of_several_is_taken() -> None:
    """A replica answers, but forgets what it is told."""
    replica, master = FakeRedis(role=b"slave"), FakeRedis()
    down = FakeRedis()
    down.is_down = True
    places = Places([ONE, TWO, THREE], WireOptions(), open_wire=opening(one=down, two=replica, three=master))

    wire = places.connect()

    assert wire is master.wires[-1]
    assert replica.wires[-1].is_closed


def test_next_search_begins_where_the_last_one_ended() -> None:
    """Fail-over costs one time-out, not one with each reconnection."""
    down, master = FakeRedis(), FakeRedis()
    down.is_down = True
    places = Places([ONE, TWO], WireOptions(), open_wire=opening(one=down, two=master))

    places.connect()
    places.connect()

    assert (down.connects, master.connects) == (1, 2)


def test_without_a_master_the_last_reason_is_told() -> None:
    replica, other = FakeRedis(role=b"slave"), FakeRedis(role=b"slave")
    places = Places([ONE, TWO], WireOptions(), open_wire=opening(one=replica, two=other))

    with pytest.raises(RedisUnavailableError, match="Redis at redis:2: is a replica, expected the master"):
        places.connect()


class Sentinel:
    """Answers with `answer` to everything."""

    def __init__(self, answer: Reply) -> None:
        self.answer = answer
        self.options: list[WireOptions] = []
        self.is_closed = False

    def is_usable(self) -> bool:
        return True

    def send(self, calls: object) -> None:
        assert calls

    def read(self, count: int) -> list[Reply]:
        return [self.answer] * count

    def close(self) -> None:
        self.is_closed = True


def guarded(sentinel: Sentinel, master: FakeRedis) -> OpenWire:
    def open_wire(endpoint: Endpoint, options: WireOptions) -> Wire:
        if endpoint == ONE:
            sentinel.options.append(options)
            return sentinel
        assert endpoint == THREE
        return master.open_wire(endpoint, options)

    return open_wire


def test_sentinel_names_the_master() -> None:
    """It has neither our database nor our password."""
    sentinel, master = Sentinel([b"redis", b"3"]), FakeRedis()
    options = WireOptions(database=4, username="hub", password="secret")

    wire = Places([ONE], options, "mymaster", guarded(sentinel, master)).connect()

    assert wire is master.wires[-1]
    assert sentinel.is_closed
    assert sentinel.options == [WireOptions()]


@pytest.mark.parametrize(
    ("answer", "message"),
    [(None, "knows no master 'mymaster'"), (b"x", "does not say where the master is"), ([b"a"], "does not say")],
)
def test_sentinel_that_knows_no_master_is_told(answer: Reply, message: str) -> None:
    places = Places([ONE], WireOptions(), "mymaster", guarded(Sentinel(answer), FakeRedis()))

    with pytest.raises(RedisUnavailableError, match=message):
        places.connect()


def test_without_an_address_it_is_told() -> None:
    refuse: Callable[[], object] = Places([], WireOptions()).connect

    with pytest.raises(RedisUnavailableError, match=r"redis\.addresses"):
        refuse()


def test_words_of_every_server_are_told() -> None:
    """One may refuse the hub while another is away; where to read on is said once."""

    def open_wire(endpoint: Endpoint, _options: WireOptions) -> Wire:
        words = "Authentication required" if endpoint == ONE else "Connection refused"
        raise RedisUnavailableError(f"Redis at {endpoint}: {words}", remedy=str(ADVICE))

    with pytest.raises(RedisUnavailableError) as caught:
        Places([ONE, TWO], WireOptions(), open_wire=open_wire).connect()

    assert str(caught.value) == (
        f"Redis at redis:1: Authentication required; Redis at redis:2: Connection refused; {ADVICE}"
    )
