"""Queues on Redis: does the server keep what it is given, as the hub wants it?

Knows no key: nothing is written. Whether Redis answers at all is another look.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from iothub.doctor.findings import Finding, Look, State, timed
from iothub.drivers import redis_queues
from iothub.errors import BackendError
from iothub.settings import Config

_NAME = "Redis queues"
_KEPT = {
    "disk": "what is acknowledged is on the disk",
    "memory": 'what is acknowledged is in memory alone (queues.redis_durability = "memory")',
}


def look(settings: Config) -> Look:
    return Look(_NAME, lambda: _look(settings))


def _look(settings: Config) -> Iterator[Finding]:
    durability = settings.queues.redis_durability
    with closing(redis_queues(settings)) as queues:
        try:
            _, seconds = timed(queues.require_kept)
        except BackendError as error:
            advice = "set it in redis.conf and by CONFIG SET; the hub stores nothing there until it is right"
            yield Finding(_NAME, State.FAIL, str(error), advice)
            return
    state = State.OK if durability == "disk" else State.WARN
    yield Finding(_NAME, state, _KEPT[durability], seconds=seconds)
