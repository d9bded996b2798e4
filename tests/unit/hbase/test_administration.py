"""Our Java program as the hub runs it, played by a shell script; and the status that Thrift 1 can show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from iothub.base.errors import BackendError, ConflictError, UnavailableError
from iothub_services.hbase import thrift
from iothub_services.hbase.administration import TableState, table_status
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Call
from iothub_services.hbase.table_admin import TableAdmin, decode, encode
from iothub_services.hbase.tables import TableLayout, layouts
from tests.support.hbase.hbase_gateway import FakeGateway

T = TypeVar("T")
WANTED = layouts("hub", 4)

MakeProgram = Callable[[str], TableAdmin]


class Played(Caller):
    """Answers by the fake gateway, without a connection."""

    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway = gateway

    def call_many(self, calls: Sequence[Call[T]]) -> list[T | BackendError]:
        return [call.decode(self._gateway.answer(call.frame(1)[4:])) for call in calls]


@pytest.fixture
def make_program(tmp_path: Path) -> MakeProgram:
    """Make a program of a shell script's lines; $1 is the class, $2 the verb."""

    def make(lines: str) -> TableAdmin:
        program = tmp_path / "hbase"
        program.write_text(f"#!/bin/sh\ncd {tmp_path}\n{lines}\n")
        program.chmod(0o755)
        return TableAdmin(program, limit_s=20)

    return make


def test_layouts_are_told_and_read_back() -> None:
    """The same lines in both directions; log lines between them are somebody else's."""
    text = encode(WANTED)

    assert "table\thub:queues\nset\tSPLIT_POLICY\t" in text
    assert "split\t40\nsplit\t80\nsplit\tc0\n" in text
    assert [replace(layout, is_fixed=False) for layout in WANTED] == decode("2026 INFO hello\n" + text)


PROGRAM = "echo $* >>words; if [ -e there ]; then cat there; rm there; else tee told | sed -n 's/^table/created/p'; fi"


def test_create_makes_all_in_one_run(make_program: MakeProgram, tmp_path: Path) -> None:
    """A Java program takes seconds to start."""
    assert make_program(PROGRAM).create(WANTED) == [layout.name for layout in WANTED]

    assert (tmp_path / "words").read_text() == "iothub.hbase.admin.TableAdmin create\n"


def test_create_makes_what_is_missing(make_program: MakeProgram, tmp_path: Path) -> None:
    """Those that are there are told in place of making any, looked at, and left alone."""
    (tmp_path / "there").write_text(encode(WANTED[:2]))

    created = make_program(PROGRAM).create(WANTED)

    assert created == [layout.name for layout in WANTED[2:]]
    assert decode((tmp_path / "told").read_text()) == [replace(layout, is_fixed=False) for layout in WANTED[2:]]


def test_table_that_somebody_else_makes_meanwhile_is_not_ours(make_program: MakeProgram) -> None:
    """It is there, and we did not make it."""
    admin = make_program("sed -n 's/^table/created/p' | sed 1s/created/exists/")

    assert admin.create(WANTED) == [layout.name for layout in WANTED[1:]]


def test_create_with_nothing_missing_runs_once(make_program: MakeProgram, tmp_path: Path) -> None:
    """Safe to repeat."""
    (tmp_path / "there").write_text(encode(WANTED))
    admin = make_program("echo run >>runs; cat there")

    assert admin.create(WANTED) == []
    assert (tmp_path / "runs").read_text() == "run\n"


def test_other_layout_is_a_conflict_and_nothing_is_made(make_program: MakeProgram, tmp_path: Path) -> None:
    """Exit code 4, with table and setting."""
    (tmp_path / "there").write_text(encode(WANTED[:1]).replace("EAGER", "NONE"))
    admin = make_program("echo $2 >>verbs; cat there")

    with pytest.raises(ConflictError, match="hub:queues: m: IN_MEMORY_COMPACTION is NONE in place of EAGER"):
        admin.create(WANTED)

    assert (tmp_path / "verbs").read_text() == "create\n"


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (
            'echo "noise" >&2; echo "TableAdmin: IOException: no ZooKeeper" >&2; exit 1',
            "TableAdmin: IOException: no ZooKeeper",
        ),
        (
            'echo "Error: Could not find or load main class $1" >&2; exit 1',
            "put the iothub-hbase jar into HBASE_CLASSPATH",
        ),
        ('echo "TableAdmin: DoNotRetryIOException: Class x cannot be loaded" >&2; exit 1', "have the iothub-hbase jar"),
        ("exit 3", "no word why"),
    ],
)
def test_failing_program_is_told_in_one_line(make_program: MakeProgram, lines: str, what: str) -> None:
    """Exit code 7, and what to do where we know it."""
    with pytest.raises(UnavailableError, match=what):
        make_program(lines).create(WANTED)


def test_program_that_is_not_there_is_told_with_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most machines with a hub have no HBase: by its name in PATH, by the setting at one place."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/no/where")
    for program, where in (
        ("no-such-program", rf"looked for in PATH \({tmp_path}:/no/where\); install HBase's client there, or"),
        (tmp_path / "hbase-java", r"hbase-java cannot be run \(No such file.*hbase\.admin_program names it"),
        (tmp_path, r"cannot be run \(Permission denied\): hbase\.admin_program names it"),
    ):
        with pytest.raises(UnavailableError, match=rf"{where}.* set hbase\.admin_program to the whole path"):
            TableAdmin(program).create(WANTED)


def test_program_that_nothing_runs_is_told_as_that(tmp_path: Path) -> None:
    """It is there: who looks for the file finds nothing wrong."""
    program = tmp_path / "hbase-java"
    program.write_text("#!/no/such/python\n")
    program.chmod(0o755)

    with pytest.raises(UnavailableError, match="the file is there, but not what its first line says"):
        TableAdmin(program).create(WANTED)


def test_program_that_does_not_end_is_given_up(make_program: MakeProgram) -> None:
    """HBase's own client tries for minutes."""
    admin = make_program("exec sleep 60")
    admin._limit_s = 0.1

    with pytest.raises(UnavailableError, match=r"did not end within 0\.1 s"):
        admin.create(WANTED)


# --- status through the gateway


def _family(name: str, versions: int, bloom: str) -> bytes:
    described = thrift.field(thrift.STRING, 1) + thrift.text(f"{name}:".encode()) + thrift.field(thrift.I32, 2)
    described += thrift.i32(versions) + thrift.field(thrift.STRING, 5) + thrift.text(bloom.encode())
    described += thrift.field(thrift.I32, 9) + thrift.i32(2147483647) + thrift.END
    return thrift.text(f"{name}:".encode()) + described


@pytest.fixture
def gateway() -> FakeGateway:
    """One whose tables are ours: as Thrift 1 shows them."""
    made = FakeGateway()
    by_name = {layout.name.encode(): layout for layout in WANTED}
    made.tables.update({name: {} for name in by_name})

    def families(arguments: dict[int, bytes]) -> tuple[int, bytes]:
        found = [_family(each.name, 1, each.settings["BLOOMFILTER"]) for each in by_name[arguments[1]].families]
        return thrift.MAP, bytes((thrift.STRING, thrift.STRUCT)) + thrift.i32(len(found)) + b"".join(found)

    def regions(arguments: dict[int, bytes]) -> tuple[int, bytes]:
        starts = (b"", *by_name[arguments[1]].splits)
        return thrift.LIST, thrift.structs(
            [thrift.field(thrift.STRING, 1) + thrift.text(start) + thrift.END for start in starts]
        )

    made.verbs["getColumnDescriptors"] = families
    made.verbs["getTableRegions"] = regions
    made.verbs["isTableEnabled"] = lambda arguments: (thrift.BOOL, bytes((arguments[1] != b"hub:state",)))
    return made


def test_status_shows_every_table(gateway: FakeGateway) -> None:
    """There, not there, switched off."""
    del gateway.tables[b"hub:retained"]

    found = {status.name.removeprefix("hub:"): status for status in table_status(Played(gateway), WANTED)}

    assert {name: status.state for name, status in found.items()} == {
        "queues": TableState.OK,
        "queue_index": TableState.OK,
        "bodies": TableState.OK,
        "state": TableState.DISABLED,
        "checkpoints": TableState.OK,
        "retained": TableState.MISSING,
    }
    assert (found["queues"].regions, found["checkpoints"].regions) == (4, 1)


def test_status_sees_other_regions(gateway: FakeGateway) -> None:
    """Tables that were made with another number of them."""
    wanted: Sequence[TableLayout] = layouts("hub", 8)

    status = table_status(Played(gateway), wanted)[0]

    assert (status.state, status.problems) == (TableState.DIFFERENT, ("4 regions, or other bounds, in place of 8",))
