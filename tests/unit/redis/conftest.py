"""The reactor's client with a clock that is told, and a fake server behind its thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest
from twisted.internet.task import Clock

from iothub_services.redis.blocking import Pauses
from iothub_services.redis.client import Bounds, RedisClient
from tests.support.servers.fake_redis import FakeRedis

_PATIENCE_S = 10.0


class World(Clock):
    """A reactor: time passes when it is told to, and what a thread asks for is done when the test waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.server = FakeRedis()
        self.states: list[str] = []
        self.metered: list[tuple[int, int, bool]] = []
        self.by_passed = 0
        self._from_thread: SimpleQueue[tuple[Callable[..., object], tuple[object, ...]]] = SimpleQueue()

    def callFromThread(self, call: Callable[..., object], *args: object) -> None:
        self._from_thread.put((call, args))

    def answer(self) -> None:
        """Wait for the pipeline that is under way."""
        call, args = self._from_thread.get(timeout=_PATIENCE_S)
        call(*args)

    def done(self, calls: int, refused: int, seconds: float, *, is_lost: bool) -> None:
        assert seconds >= 0
        self.metered.append((calls, refused, is_lost))

    def bypassed(self, calls: int) -> None:
        self.by_passed += calls


MakeClient = Callable[..., RedisClient]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def make_client(world: World) -> Iterator[MakeClient]:
    made: list[RedisClient] = []

    def make(**bounds: float) -> RedisClient:
        made.append(
            RedisClient(
                world.server.link(),
                world,
                bounds=Bounds(**bounds),  # type: ignore[arg-type]
                meter=world,
                on_state=world.states.append,
                pauses=Pauses(lambda: 1.0),
            )
        )
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def client(world: World, make_client: MakeClient) -> RedisClient:
    """Started, and known to be well."""
    made = make_client()
    made.start()
    world.answer()
    return made
