"""The grammar of limits: what it takes, what it refuses and how it says so."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError
from iothub_services.quota.grammar import Window, format_limits, parse_limits, parse_name, standard_limits
from iothub_services.quota.names import Quota


def test_parse_reads_names_units_and_windows() -> None:
    """A level, a rate with two windows, sizes and times with their units."""
    limits = parse_limits(
        "connections=100 publish_messages=10000000/1d,500/1s publish_bytes=1MiB/10s session_expiry_s=7d"
    )

    assert limits == {
        Quota.CONNECTIONS: (Window(0, 100),),
        Quota.PUBLISH_MESSAGES: (Window(1, 500), Window(86_400, 10_000_000)),
        Quota.PUBLISH_BYTES: (Window(10, 1 << 20),),
        Quota.SESSION_EXPIRY_S: (Window(0, 7 * 86_400),),
    }


def test_parse_takes_several_arguments() -> None:
    """Blanks and further arguments separate names alike."""
    assert parse_limits(["connections=1 sessions=2", "subscriptions=3"]) == parse_limits(
        "connections=1 sessions=2 subscriptions=3"
    )


def test_parse_keeps_a_dry_run_beside_an_enforced_limit() -> None:
    """A limit can be tried out while another holds."""
    limits = parse_limits("publish_messages=500/1s dry-run:publish_messages=100/1s")

    assert limits == {Quota.PUBLISH_MESSAGES: (Window(1, 500), Window(1, 100, is_dry_run=True))}
    assert format_limits(limits) == "publish_messages=500/1s dry-run:publish_messages=100/1s"


def test_parse_knows_unlimited() -> None:
    """A layer can lift a limit of the layer below."""
    assert parse_limits("connections=unlimited") == {Quota.CONNECTIONS: (Window(0, None),)}


def test_windows_of_an_hour_are_durable() -> None:
    """From an hour on a window is kept on disk."""
    minute, hour = parse_limits("connects=5/59m,6/60m")[Quota.CONNECTS]

    assert (minute.is_durable, hour.is_durable) == (False, True)


def test_format_is_canonical() -> None:
    """Names in the order of the table, largest fitting unit."""
    assert (
        format_limits(parse_limits("retained_bytes=65536 connects=5/60s connections=7"))
        == "connections=7 connects=5/1m retained_bytes=64KiB"
    )


def test_standard_plan_round_trips() -> None:
    """What `init` stores is what it reads back."""
    assert parse_limits(format_limits(standard_limits())) == standard_limits()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("conections=5", "did you mean 'connections'?"),
        ("connections", "expected name=value"),
        ("connections=", "expected name=value"),
        ("=5", "unknown quota ''"),
        ("connections=5/1s", "takes no window"),
        ("connections=5,sessions=1", "blanks separate limits, expected connections=5 sessions=1"),
        ("connections=1=2", "expected a whole number"),
        ("publish_messages=5", "is a rate"),
        ("publish_messages=/1s", "expected a whole number"),
        ("publish_messages=5/", "expected a whole number"),
        ("publish_messages=5/0s", "at least 1s"),
        ("publish_messages=5/1", "has no unit"),
        ("publish_messages=5/2w", "units here: s m h d"),
        ("publish_messages=5/90m", "expected one of 1h"),
        ("publish_messages=5/1s,", "is a rate"),
        ("publish_messages=5/1s,6/1s", "same window"),
        ("publish_messages=0/1s", "1 or more"),
        ("publish_messages=5KiB/1s", "unknown unit 'KiB'"),
        ("publish_bytes=5mib/1s", "did you mean 'MiB'?"),
        ("connections=5 connections=6", "given twice"),
        ("connections=-1", "whole number"),
        ("connections=1.5", "whole number"),
        ("connections=\u00b2", "whole number"),
        ("connections=99999999999999999999", "too large"),
        ("retained_bytes=9999999999999999999GiB", "too large"),
        ("receive_maximum=70000", "1 to 65535"),
        ("topic_levels=0", "1 to 1024"),
        ("filter_levels=1025", "1 to 1024"),
        ("dry-run:nothing=1", "unknown quota 'nothing'"),
        ("DRY-RUN:connections=1", "unknown quota"),
    ],
)
def test_parse_refuses_what_it_does_not_understand(text: str, words: str) -> None:
    """Never a guess: one line that names the part and the expected form."""
    with pytest.raises(ConfigError) as caught:
        parse_limits(text)

    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_parse_name_finds_the_quota() -> None:
    """For commands that take a name alone."""
    assert parse_name("connects") is Quota.CONNECTS
    with pytest.raises(ConfigError, match="did you mean 'connects'"):
        parse_name("conects")
