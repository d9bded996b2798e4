"""Queues on Redis: does the server keep what it is given, as the hub wants it?

Knows no key: nothing is written. Whether Redis answers at all is another look.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from iothub.base.errors import BackendError
from iothub.config.sections import Config
from iothub.doctor.findings import Finding, Look, State, timed
from iothub.doctor.redis import HINT, in_plain_text
from iothub.hub.drivers import redis_queues

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
        except BackendError as refused:
            error = in_plain_text(settings.redis) or refused
            advice = f"{_advice(error)}; the hub stores nothing there until it is right"
            yield Finding(_NAME, State.FAIL, error.fact, advice)
            return
    state = State.OK if durability == "disk" else State.WARN
    yield Finding(_NAME, state, _KEPT[durability], seconds=seconds)


def _advice(error: BackendError) -> str:
    """What to do about a server that cannot be asked, or keeps not what it is given."""
    from iothub_services.redis.calls import RedisUnavailableError

    if isinstance(error, RedisUnavailableError):
        return error.remedy or HINT
    return "set it in redis.conf and by CONFIG SET"
