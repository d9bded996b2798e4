"""The grammar of limits round-trips, and nothing that a person can type does anything but parse or be refused."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.base.errors import ConfigError
from iothub_services.quota.grammar import DURABLE_WINDOWS_S, Limits, Window, format_limits, parse_limits
from iothub_services.quota.names import Kind, Quota
from iothub_services.quota.resolve import resolve
from tests.support.night import by_day


@st.composite
def windows(draw: st.DrawFn, quota: Quota, is_dry_run: bool) -> tuple[Window, ...]:
    if draw(st.integers(0, 9)) == 0:
        return (Window(0, None, is_dry_run),)
    limits = st.integers(quota.least, quota.most or (1 << 40))
    if quota.kind is not Kind.RATE:
        return (Window(0, draw(limits), is_dry_run),)
    lengths = st.one_of(st.integers(1, 3599), st.sampled_from(DURABLE_WINDOWS_S))
    seconds = draw(st.lists(lengths, min_size=1, max_size=3, unique=True))
    return tuple(Window(each, draw(limits), is_dry_run) for each in sorted(seconds))


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    made: Limits = {}
    for quota in draw(st.lists(st.sampled_from(Quota), unique=True, max_size=6)):
        kinds = draw(st.sampled_from([(False,), (True,), (False, True)]))
        made[quota] = tuple(window for is_dry_run in kinds for window in draw(windows(quota, is_dry_run)))
    return made


@settings(max_examples=by_day(100, 600), deadline=None)
@given(limits())
def test_limits_round_trip(made: Limits) -> None:
    """What is formatted is read back as the same, however it is cut into arguments."""
    text = format_limits(made)

    assert parse_limits(text) == made
    assert parse_limits(text.split()) == made
    assert format_limits(parse_limits(text)) == text


@settings(max_examples=by_day(100, 600), deadline=None)
@given(st.text(st.sampled_from("connectis_publh=/,0159smhdKMGiB:-dry run\u00b2\u0661unlimited"), max_size=40))
def test_anything_typed_is_limits_or_one_clear_line(text: str) -> None:
    """No other exception, no second line."""
    refusal = ""
    made: Limits = {}
    try:
        made = parse_limits(text)
    except ConfigError as error:
        refusal = str(error)

    assert "\n" not in refusal
    assert parse_limits(format_limits(made)) == made


@settings(max_examples=by_day(100, 600), deadline=None)
@given(limits(), limits())
def test_upper_layer_wins_and_silence_inherits(plan: Limits, tenant: Limits) -> None:
    """Name by name, enforced and dry-run limits apart."""
    both, lower, upper = resolve(plan, tenant), resolve(plan), resolve(tenant)
    for quota in Quota:
        says_so = any(not window.is_dry_run for window in tenant.get(quota, ()))
        source = upper if says_so else lower
        if quota.kind is Kind.RATE:
            assert both.rates.get(quota) == source.rates.get(quota)
        else:
            assert both.figure(quota) == source.figure(quota)
