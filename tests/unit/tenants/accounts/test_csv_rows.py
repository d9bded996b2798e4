"""The rows of an import: what is wrong with each bad line, without a word that may be a password."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from iothub.base.errors import ConfigError
from iothub_services.quota.grammar import parse_limits
from iothub_tenants.accounts.csv_rows import BadLinesError, CsvRows, DeviceRow, header_lines, lines_from, read_csv_rows

HEADER = "name,password"


def faults(*rows: str, is_generating: bool = False) -> dict[int, str]:
    return read_csv_rows(rows, is_generating=is_generating).faults


def test_rows_are_read_with_their_lines() -> None:
    """Quotes, blank lines, a byte order mark and the header's case are CSV's business."""
    parsed = read_csv_rows(
        ["\ufeffName, PASSWORD\r\n", "dev1,one\r\n", "\r\n", 'dev2,"a,""b"""\r\n'], is_generating=False
    )

    assert parsed == CsvRows({"dev1": DeviceRow(2, "one"), "dev2": DeviceRow(4, 'a,"b"')}, {})


def test_columns_stand_in_any_order() -> None:
    """Groups and limits are separated by blanks; a limit with a comma is quoted, as CSV has it."""
    rows = [
        "limits,name,groups,password",
        '"device_publish_messages=5/1s,9/1d packet_bytes=1KiB",dev1,hall-1 sensors hall-1,one',
        ",dev2,,two",
    ]

    parsed = read_csv_rows(rows, is_generating=False)

    own = parse_limits("device_publish_messages=5/1s,9/1d packet_bytes=1KiB")
    assert parsed == CsvRows({"dev1": DeviceRow(2, "one", ("hall-1", "sensors"), own), "dev2": DeviceRow(3, "two")}, {})


@pytest.mark.parametrize(
    ("cell", "fault"),
    [
        ("packet_bytes=x", "limit 'packet_bytes=x': expected a whole number, got 'x'"),
        ("connections=3", "connections is counted for a whole tenant: it cannot be set for one device"),
        ("packet_bytes=1KiB dry-run:packet_bytes=2KiB", "packet_bytes has no dry run"),
        ("packet_bytes=1KiB packet_bytes=2KiB", "limit 'packet_bytes' is given twice"),
    ],
)
def test_bad_limit_is_named(cell: str, fault: str) -> None:
    assert fault in faults("name,password,limits", f"dev1,pw,{cell}", "dev2,pw,")[2]


@pytest.mark.parametrize("rest", ["s!cret", "s!cret=1", "s!cret packet_bytes=1"])
def test_rest_of_a_password_with_a_comma_is_not_shown(rest: str) -> None:
    """It lies in the next column."""
    found = faults("name,password,limits", f"dev1,pw,{rest}")

    assert found[2].startswith("limit 1 of dev1: expected the name of a limit and its value")
    assert "s!cret" not in found[2]


@pytest.mark.parametrize("rows", [["name", "dev1", "dev2"], [HEADER, "dev1,", "dev2,"]])
def test_device_without_a_password_waits_for_a_secret(rows: list[str]) -> None:
    devices = read_csv_rows(rows, is_generating=True).devices

    assert {name: row.password for name, row in devices.items()} == {"dev1": None, "dev2": None}


@pytest.mark.parametrize("rows", [["name", "dev1"], [HEADER, "dev1,"]])
def test_missing_password_says_how_to_go_on(rows: list[str]) -> None:
    (fault,) = faults(*rows).values()

    assert "--secrets-to FILE" in fault


@pytest.mark.parametrize(
    "rows",
    [[], ["dev1,x"], ["name;password", "a;b"], ["name,password,x"], ["password,groups"], ["name,name"], ["", "x,y"]],
)
def test_text_without_the_header_is_bad_in_one_line(rows: list[str]) -> None:
    """Its rows would all be bad for the same reason; what stands there may be a password."""
    found = faults(*rows)

    assert list(found.values()) == ["not the header: expected name,password[,groups][,limits]"]
    assert list(found) == [2 if rows[:1] == [""] else 1]


def test_part_of_a_file_has_the_lines_of_the_file() -> None:
    """Whatever stands before its rows; also lines that are no CSV."""
    found = read_csv_rows(["", HEADER, "", "dev1,x,y", 'dev2,"x"y'], is_generating=False, first_line=40).faults

    assert {line: text[:7] for line, text in found.items()} == {41: "3 colum", 42: "not CSV"}


@pytest.mark.parametrize(("first", "rows"), [(2, ["a", "b"]), (3, ["b"])])
def test_lines_of_a_file_from_one_on_have_the_header(first: int, rows: list[str]) -> None:
    assert lines_from([HEADER, "a", "b"], first) == [HEADER, *rows]
    assert header_lines(["\n", HEADER, "a"]) == 2


@pytest.mark.parametrize("first", [0, 1, 4])
def test_line_that_no_row_of_the_file_has_is_refused(first: int) -> None:
    with pytest.raises(ConfigError, match="from 2 to 3"):
        lines_from([HEADER, "a", "b"], first)


def test_broken_quotes_are_named_and_the_rest_is_read() -> None:
    found = faults(HEADER, 'dev1,"x"y', "dev2,x,y", 'dev3,"no end')

    assert found[2].startswith("not CSV (")
    assert found[3] == "3 columns, expected 2"
    assert found[4] == "not CSV (unexpected end of data)"


def test_text_that_is_no_utf_8_is_named_by_line() -> None:
    """As `errors="surrogateescape"` reads it, and as a strict reader fails."""
    assert faults(HEADER, "dev1,x", "dev2,\udcff", "dev3,\udcfe") == {
        3: "not UTF-8 text: save the file as UTF-8",
        4: "not UTF-8 text: save the file as UTF-8",
    }

    def rows() -> Iterator[str]:
        yield HEADER
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    assert list(read_csv_rows(rows(), is_generating=False).faults) == [2]


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("bäd,p w", "not a device name 'bäd': character 2 is none of A-Z, a-z, 0-9 and . _ : @ -"),
        ("a b,p w", "not a device name: character 2 is ' ', which no name has; expected a comma between the columns"),
        ("-dev,p w", "not a device name '-dev': character 1 is none of"),
        (f"{'x' * 129},p w", "129 characters, expected at most 128"),
        (",x", "the name is empty"),
        (f"dev1,{'x' * 1025}", "the password of dev1 is too long or holds a NUL"),
    ],
)
def test_bad_name_is_shown_with_what_is_wrong(row: str, fault: str) -> None:
    assert fault in faults(HEADER, row)[2]


@pytest.mark.parametrize("row", ["dev1;s!cret,", "dev1 s!cret,x", "dev1\ts!cret,", "dev1|s!cret,", "s!cret,dev1"])
def test_text_that_may_be_a_password_is_not_shown(row: str) -> None:
    """A wrong separator, or swapped columns."""
    fault = faults(HEADER, row, is_generating=True)[2]

    assert fault.startswith("not a device name: character ")
    assert "s!cret" not in fault


def test_only_the_first_bad_lines_are_listed() -> None:
    parsed = CsvRows(faults=dict.fromkeys(range(30, 1, -1), "bad"))

    with pytest.raises(BadLinesError, match=r"nothing was imported \(bad lines: 29\)") as refusal:
        parsed.refuse()

    assert refusal.value.exit_code == 4
    assert refusal.value.details[0] == "line 2: bad"
    assert refusal.value.details[19:] == ("line 21: bad", "and 9 more")
