"""Micro-benchmark of the router, the filters, the meters and the wheel: `python tests/bench/test_bench_router.py`.

Knows no broker: the figures are of single calls, in one process. Run it once as it is and once with IOTHUB_PURE_PYTHON=1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter

from iothub.engine import router as engine_router
from iothub.engine.buckets import Meter
from iothub.engine.filters import check_topic_filter, check_topic_name, covers, topic_matches
from iothub.engine.router import Router, Subscription
from iothub.engine.wheel import Wheel


def seconds_per_call(call: Callable[[], object], calls: int) -> float:
    """Return the best of five rounds, the loop's own cost taken off."""

    def nothing() -> None:
        return None

    def once(what: Callable[[], object]) -> float:
        begin = perf_counter()
        for _ in range(calls):
            what()
        return perf_counter() - begin

    return max(0.0, (min(once(call) for _ in range(5)) - min(once(nothing) for _ in range(5))) / calls)


def fleet(devices: int) -> Router:
    router = Router()
    for number in range(devices):
        session = object()
        router.subscribe(Subscription(session, b"fleet/%d/command" % number))
        router.subscribe(Subscription(session, b"fleet/%d/config/#" % number))
    for _ in range(10):
        router.subscribe(Subscription(object(), b"fleet/+/state"))
    return router


def crowd(sessions: int) -> Router:
    router = Router()
    for _ in range(sessions):
        router.subscribe(Subscription(object(), b"news/today"))
    return router


def figures() -> dict[str, float]:
    """Return microseconds per call by name."""
    router = fleet(1000)
    topics = [b"fleet/%d/state" % number for number in range(1000)]
    for topic in topics:
        router.match(topic)
    hit = topics[7]
    misses = iter([b"fleet/%d/state" % number for number in range(10**6, 2 * 10**6)])
    session = object()
    subscription = Subscription(session, b"fleet/5/reply")

    def change() -> None:
        router.subscribe(subscription)
        router.unsubscribe(session, b"fleet/5/reply", None)

    meter = Meter([(10**9, 1.0)], 0.0)
    wheel = Wheel(0.0)
    crowded = crowd(100_000)
    deep = b"/" * 65_535
    begin = perf_counter()
    crowded.match(b"news/today")
    first = perf_counter() - begin
    timed: dict[str, float] = {
        "match, cached": seconds_per_call(lambda: router.match(hit), 200_000),
        "match, not cached, 10 receivers": seconds_per_call(lambda: router.match(next(misses)), 20_000),
        "subscribe and unsubscribe, exact": seconds_per_call(change, 50_000),
        "first match of 100,000 receivers": first,
        "topic_matches": seconds_per_call(lambda: topic_matches(b"fleet/+/state/#", b"fleet/1234/state/a/b"), 100_000),
        "covers": seconds_per_call(lambda: covers(b"fleet/+/#", b"fleet/1234/state/+/b"), 100_000),
        "check_topic_name": seconds_per_call(lambda: check_topic_name(b"fleet/1234/state", 128, 4096), 100_000),
        "check_topic_filter, 65,535 levels": seconds_per_call(
            lambda: check_topic_filter(deep + b"#", 65_536, 65_536), 20
        ),
        "covers, 65,535 levels": seconds_per_call(lambda: covers(deep + b"#", deep + b"#"), 20),
        "meter.take": seconds_per_call(lambda: meter.take(1, 1.0), 100_000),
        "wheel: schedule and cancel": seconds_per_call(lambda: wheel.schedule(3600.0, None).cancel(), 100_000),
    }
    return {name: seconds * 1e6 for name, seconds in timed.items()}


if __name__ == "__main__":
    twin = "plain" if (engine_router.__file__ or "").endswith(".py") else "compiled"
    sys.stdout.write(f"router micro-benchmark, {twin} twin, microseconds per call\n")
    for name, value in figures().items():
        sys.stdout.write(f"{value:12.3f}  {name}\n")
