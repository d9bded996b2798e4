"""Figures of charts, from what a hub's metrics say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from iothub.dashboard import exposition
from iothub.dashboard.api import RefusalError
from iothub.dashboard.sampler import NEAR, Sampler, point

BEFORE = """\
iothub_connections{listener="tcp"} 3
iothub_messages_received_total{qos="0"} 10
iothub_messages_dropped_total{reason="queue_full"} 1
iothub_reactor_tick_duration_seconds_bucket{le="0.001"} 10
iothub_reactor_tick_duration_seconds_bucket{le="0.01"} 10
iothub_reactor_tick_duration_seconds_bucket{le="+Inf"} 10
"""
NOW = """\
iothub_connections{listener="tcp"} 4
iothub_connections{listener="ws"} 1
iothub_messages_received_total{qos="0"} 30
iothub_messages_dropped_total{reason="queue_full"} 6
iothub_reactor_tick_duration_seconds_bucket{le="0.001"} 20
iothub_reactor_tick_duration_seconds_bucket{le="0.01"} 30
iothub_reactor_tick_duration_seconds_bucket{le="+Inf"} 30
"""


def test_point_has_gauges_rates_and_quantiles() -> None:
    made = point(exposition.read(NOW), exposition.read(BEFORE), 5.0)

    assert made["connections"] == 5
    assert made["received"] == 4.0
    assert made["dropped:queue_full"] == 1.0
    assert made["tick_p50"] == pytest.approx(0.001)
    assert 0.009 < (made["tick_p99"] or 0) <= 0.01
    assert made["commit_p99"] is None


def test_point_of_a_first_reading_has_no_rates() -> None:
    assert "received" not in point(exposition.read(NOW), None, 0.0)


def test_counter_that_fell_has_begun_again() -> None:
    made = point(exposition.read(BEFORE), exposition.read(NOW), 5.0)

    assert made["received"] == 2.0


def test_label_with_quotes_and_backslashes_is_read_as_it_was() -> None:
    found = exposition.read(r'a{tenant="x\"y\\z\n",b="<b>"} 1')

    assert found == {"a": [({"tenant": 'x"y\\z\n', "b": "<b>"}, 1.0)]}


def tenant_page(*rows: tuple[str, int, int]) -> str:
    lines = []
    for name, received, used in rows:
        lines += [
            f'iothub_tenant_connections{{tenant="{name}"}} 2',
            f'iothub_tenant_messages_received_total{{tenant="{name}",qos="0"}} {received}',
            f'iothub_tenant_quota_limit{{tenant="{name}",quota="connections"}} 10',
            f'iothub_tenant_quota_used{{tenant="{name}",quota="connections"}} {used}',
        ]
    return "\n".join(lines)


class Answers:
    """An API that answers with one text after the other."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.asked: list[str] = []

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        self.asked.append(scope["path"] + "?" + scope["query_string"].decode())
        status = 200 if self.texts else 503
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": self.texts.pop(0).encode() if self.texts else b"no"})


def sampled(rest: Answers, times: list[float]) -> Sampler:
    sampler = Sampler(rest, clock=lambda: times.pop(0))

    async def go() -> None:
        for _ in range(len(times)):
            await sampler.sample_tenants()

    asyncio.run(go())
    return sampler


def test_tenants_are_ranked_by_what_they_do_between_two_samples() -> None:
    rest = Answers(tenant_page(("a", 0, 1), ("b", 100, 9)), tenant_page(("a", 60, 1), ("b", 130, 9)))

    sampler = sampled(rest, [0.0, 30.0])

    assert sampler.top("received") == [("a", 2.0), ("b", 1.0)]
    assert sampler.rates("b")[-1][1]["received"] == 1.0
    assert sampler.rates("nobody") == []


def test_tenants_near_a_limit_are_found() -> None:
    sampler = sampled(Answers(tenant_page(("a", 0, 1), ("b", 0, 9))), [0.0])

    assert [(usage.tenant, usage.quota, usage.share) for usage in sampler.near_limits()] == [("b", "connections", 0.9)]
    assert NEAR == 0.8


def test_tenants_are_read_some_at_a_time() -> None:
    names = [f"t{number:04}" for number in range(250)]
    pages = [tenant_page(*((name, 0, 0) for name in part)) for part in (names[:200], names[200:])]
    rest = Answers(*pages)

    sampler = sampled(rest, [0.0])

    assert len(sampler.tenants[-1].places) == 250
    assert [each.partition("after=")[2] for each in rest.asked] == ["", "t0199"]


def test_samples_of_the_same_tenants_share_their_index() -> None:
    page = tenant_page(("a", 0, 0))

    sampler = sampled(Answers(page, page), [0.0, 30.0])

    assert sampler.tenants[0].places is sampler.tenants[1].places


def test_refusal_is_told_and_last_figures_are_not_shown_as_new() -> None:
    sampler = Sampler(Answers(NOW))

    async def go() -> None:
        await sampler.sample()
        with pytest.raises(RefusalError):
            await sampler.sample()

    asyncio.run(go())

    assert sampler.last["connections"] == 5
