"""`queues.choices`: what can never fit is refused, with the line and the number of its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.config.loader import load
from iothub.config.toml_lines import line_numbers, nearest_line

SERVERS = """
[hbase]
thrift = ["hbase-1:9090"]

[queues]
driver = "hbase"
"""


def refusal(tmp_path: Path, text: str) -> str:
    file = tmp_path / "iothub.toml"
    file.write_text(SERVERS + text)
    with pytest.raises(ConfigError) as caught:
        load(file=file, environment={}, flags=())
    assert caught.value.exit_code == 2
    return str(caught.value).removeprefix(f"{file}, ")


def accepted(text: str) -> None:
    load(file=None, environment={}, flags=("hbase.thrift=h:1", f"queues.choices={text}"))


TABLES = """
[[queues.choices]]
driver = "sqlite"
tenants = ["acme"]

[[queues.choices]]
tenants = ["delta"]
driver = "hbase"
"""


@pytest.mark.parametrize("name", ["Be ta", "b", "-beta", "beta!", "x" * 33, ""])
def test_tenant_that_can_never_be_is_refused(tmp_path: Path, name: str) -> None:
    """Nobody would ever get that driver, and nobody would notice."""
    text = refusal(
        tmp_path, f'{TABLES}\n[[queues.choices]]\ndriver = "sqlite"\ntenants = [\n  "beta",\n  "{name}",\n]\n'
    )

    assert text.startswith(
        f"line 18: queues.choices: in table 3: no tenant can have the name {name!r}: expected 2 to 32 of"
    )


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ('driver = "bogus"\ntenants = ["beta"]', "line 17: queues.choices: in table 3: expected driver to be one of"),
        (
            'driver = "hbase-plain"\ntenants = ["beta"]',
            "line 17: queues.choices: in table 3: hbase-plain was removed: use hbase (with the iothub-hbase jar",
        ),
        ('driver = "sqlite"\ntenant = "beta"', "line 18: queues.choices: in table 3: expected driver and tenants, not"),
        ('driver = "sqlite"\ntenants = "beta"', "line 18: queues.choices: in table 3: expected tenants to be a list"),
        ('driver = "sqlite"\ntenants = []', "or missing for all tenants; got []"),
        (
            'driver = "sqlite"\nexpires_within = "1h"',
            "line 18: queues.choices: in table 3: expires_within was removed, because all queues of a tenant use one driver: "
            "choose by tenants, or remove the table",
        ),
        (
            'tenants = ["beta"]',
            "line 16: queues.choices: in table 3: expected driver to be one of sqlite, hbase, redis, and it is missing",
        ),
        (
            'driver = "hbase"\n[[queues.choices]]\ndriver = "sqlite"\ntenants = ["beta"]',
            "in table 4: it never applies: table 3",
        ),
        ('driver = "redis"\ntenants = ["beta"]', 'line 17: queues.choices: in table 3: driver = "redis" needs redis'),
        (
            'driver = "hbase"\ntenants = ["acme"]',
            "line 16: queues.choices: in table 3: it never applies: table 1 matches all its tenants; move it up",
        ),
        (
            'driver = "sqlite"\ntenants = ["delta", "acme"]',
            "it never applies: tables 1, 2 match all its tenants",
        ),
    ],
)
def test_line_and_table_are_named(tmp_path: Path, table: str, expected: str) -> None:
    """Of the third table, behind two good ones."""
    assert expected in refusal(tmp_path, f"{TABLES}\n[[queues.choices]]\n{table}\n")


def test_every_wrong_table_is_named(tmp_path: Path) -> None:
    """Each with its own line; a removed value is no value to choose from."""
    file = tmp_path / "iothub.toml"
    file.write_text(
        f'{SERVERS}{TABLES}\n[[queues.choices]]\ndriver = "bogus"\n[[queues.choices]]\ndriver = "hbase-plain"\n'
    )

    with pytest.raises(ConfigError) as caught:
        load(file=file, environment={}, flags=())

    assert "line 17: queues.choices: in table 3: expected driver to be one of" in str(caught.value)
    (other,) = caught.value.details
    assert "line 19: queues.choices: in table 4: hbase-plain was removed: use hbase" in other


def test_line_of_a_table_in_a_list_is_named(tmp_path: Path) -> None:
    """The short form, with comments and brackets in texts."""
    text = refusal(
        tmp_path,
        """choices = [
  {driver = "sqlite", tenants = ["acme"]},  # not { this
  {driver = "hbase", tenants = [
     "be[ta"]},
]
""",
    )

    assert text.startswith("line 9: queues.choices: in table 2: no tenant can have the name 'be[ta'")


@pytest.mark.parametrize(
    "text",
    [
        '[{driver = "hbase", tenants = ["acme"]}, {driver = "sqlite", tenants = ["acme", "beta"]}]',
        '[{driver = "hbase", tenants = ["acme"]}, {driver = "sqlite"}]',
    ],
)
def test_choice_that_is_about_something_of_its_own_is_accepted(text: str) -> None:
    accepted(text)


def test_flag_with_a_wrong_table_is_named_as_such() -> None:
    """There is no line."""
    with pytest.raises(ConfigError, match=r"^--set queues.choices=.*: queues.choices: in table 1: no tenant can have"):
        accepted('[{driver = "hbase", tenants = ["Acme"]}]')


def test_lines_of_names() -> None:
    """A name that was not found stands where what it is in does."""
    lines = line_numbers('a = 1\n[s]\nlist = ["{", {x = 1}, [{y = 2}],\n {}]\n[[s.t]]\nk = """\n]"""\n[[s.t]]\n')

    assert (lines["a"], lines["s.list"], lines["s.t"]) == (1, 3, 5)
    assert (lines["s.list[1]"], lines["s.list[2]"]) == (3, 4)
    assert (lines["s.t[1].k"], lines["s.t[2]"]) == (6, 8)
    assert nearest_line(lines, "s.t[2].k") == 8
    assert nearest_line(lines, "t.x") is None


def test_what_stands_in_a_text_is_no_line_of_a_setting() -> None:
    """Of several lines, in both kinds of quotes."""
    lines = line_numbers('a = """\n[[s.t]]\nb = 1\n"""\nc = \'\'\'x\n[[s.t]]\'\'\'\n[[s.t]]\nd = 1  # """\ne = 2\n')

    assert lines == {"a": 1, "c": 5, "s.t": 7, "s.t[1]": 7, "s.t[1].d": 8, "s.t[1].e": 9}
