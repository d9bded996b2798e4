"""Names for arbitrary text: a username names at most one identity, and two usernames never name the same."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from iothub.base.errors import ConfigError
from iothub.base.ids import TENANT_NAME
from iothub.engine.filters import check_topic_filter
from iothub_tenants import identity
from iothub_tenants.accounts import acl_rules
from tests.support.night import by_day

TENANTS = st.from_regex(TENANT_NAME, fullmatch=True)
DEVICES = st.from_regex(identity.DEVICE_NAME, fullmatch=True)
NOISE = st.text(alphabet=st.sampled_from("aA0-._:@/ \0\n+#%$\\{}é٠"), max_size=12)
FILTERS = st.lists(
    st.sampled_from(["a", "+", "#", "", "$share", "$SYS", "a+", "b#", "é", " "]), min_size=1, max_size=6
).map("/".join)


@given(TENANTS, DEVICES)
@settings(max_examples=by_day(100, 200))
def test_proper_names_make_a_username_and_come_back(tenant: str, device: str) -> None:
    """Round trip of the one form (B68)."""
    assert identity.parse_username(f"{tenant}/{device}") == identity.Identity(tenant, device)


@given(st.one_of(NOISE, st.text(max_size=40)))
@settings(max_examples=by_day(200, 400))
@example("a1/b/c")
def test_any_text_is_nobody_or_exactly_what_it_says(username: str) -> None:
    """Nothing is changed on the way: what was parsed writes the same username."""
    found = identity.parse_username(username)

    assert found is None or (str(found) == username and found.device.isascii() and "/" not in found.device)


@given(TENANTS, DEVICES, st.integers(min_value=0), st.characters())
@settings(max_examples=by_day(150, 300))
def test_one_inserted_character_never_names_the_same(tenant: str, device: str, place: int, character: str) -> None:
    """No trimming, folding or normalising."""
    username = f"{tenant}/{device}"
    place %= len(username) + 1
    found = identity.parse_username(username[:place] + character + username[place:])

    assert found != identity.Identity(tenant, device)


@given(st.text(max_size=300))
@settings(max_examples=by_day(100, 200))
def test_refused_names_make_one_short_printable_line(name: str) -> None:
    """Whatever was typed."""
    checks = (
        identity.check_tenant_name,
        identity.check_device_name,
        identity.check_group_name,
        identity.check_plan_name,
    )

    refusals = [text for check in checks if (text := _refusal(check, name))]

    assert all(text.isprintable() and len(text) < 1000 for text in refusals)


def _refusal(check: Callable[[str], None], name: str) -> str:
    try:
        check(name)
    except ConfigError as refusal:
        return str(refusal)
    return ""


@given(st.one_of(FILTERS, st.text(alphabet="ab+#/$", max_size=8)))
@settings(max_examples=by_day(200, 400))
def test_rules_take_the_filters_that_the_engine_takes(text: str) -> None:
    """[MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1]: one notion of a Topic Filter in the harness, `$share` forms aside."""
    try:
        acl_rules.check_filter(text)
    except ConfigError:
        is_accepted = False
    else:
        is_accepted = True

    is_shared = text.split("/")[0] == "$share"
    assert is_accepted == (not is_shared and check_topic_filter(text.encode(), 128, 65_535) == 0)
