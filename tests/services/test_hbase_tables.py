"""Our tables on a real HBase: made by our Java program with regions, settings and a coprocessor, looked at through the gateway."""

from __future__ import annotations

import json
import shlex
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from iothub.base.errors import BackendError, ConflictError
from iothub.base.units import Endpoint
from iothub.cli.main import run
from iothub.records import keys
from iothub_services.hbase import calls
from iothub_services.hbase.administration import TableState, table_status
from iothub_services.hbase.caller import DirectCaller
from iothub_services.hbase.pages import pages
from iothub_services.hbase.table_admin import TableAdmin
from iothub_services.hbase.tables import layouts
from ops.services.places import HOST, ROOT
from ops.services.services import Services
from tests.support.hbase.own_tables import drop_tables

REGIONS = 4


@pytest.fixture
def caller(services: Services) -> Iterator[DirectCaller]:
    with DirectCaller([Endpoint(HOST, services.ports.thrift)]) as made:
        yield made


@pytest.fixture
def namespace(services: Services, caller: DirectCaller) -> Iterator[str]:
    """A namespace of its own for each test; its tables are gone afterwards."""
    name = f"t{uuid.uuid4().hex}"
    yield name
    made = caller.call(calls.table_names())
    drop_tables(services, [table for table in made if table.startswith(f"{name}:".encode())])


@pytest.fixture
def admin(services: Services) -> TableAdmin:
    return TableAdmin(services.places.folder / "hbase-java")


def test_tables_are_made_as_they_are_described(admin: TableAdmin, caller: DirectCaller, namespace: str) -> None:
    """Regions, families, settings, a coprocessor: all of it is read back, and a second run changes nothing."""
    wanted = layouts(namespace, REGIONS)

    assert admin.create(wanted) == [layout.name for layout in wanted]

    assert admin.create(wanted) == []
    assert {status.state for status in table_status(caller, wanted)} == {TableState.OK}
    starts = [region.start for region in caller.call(calls.regions(wanted[0].name.encode()))]
    assert starts == [b"", b"\x40", b"\x80", b"\xc0"]


def test_rows_of_queues_spread_over_the_regions(admin: TableAdmin, caller: DirectCaller, namespace: str) -> None:
    """As the keys are made for; and what is written there is found by a scan of its queue alone."""
    queues_table = layouts(namespace, REGIONS)[0]
    admin.create([queues_table])
    table = queues_table.name.encode()
    queues = [keys.queue_key(number, 7) for number in range(8)]
    caller.call_many(
        [calls.mutate_row(table, keys.record_row(queue, at), {b"d:b": b"x"}) for queue in queues for at in (1, 2, 256)]
    )

    starts = [region.start for region in caller.call(calls.regions(table))]
    homes = [max(start for start in starts if start <= queue) for queue in queues]
    scan = calls.Scan(table, queues[3], keys.prefix_end(queues[3]))
    rows = [row for page in pages(caller, scan) for row in page]

    assert sorted(homes) == sorted(starts * 2)
    assert [row.key for row in rows] == [keys.record_row(queues[3], at) for at in (1, 2, 256)]


def test_other_layout_is_refused_and_left_alone(admin: TableAdmin, caller: DirectCaller, namespace: str) -> None:
    """A table that somebody else made, or that another setting of ours made."""
    wanted = layouts(namespace, REGIONS)[:2]
    admin.create(wanted[:1])

    with pytest.raises(ConflictError, match="4 regions, or other bounds, in place of 8"):
        admin.create(layouts(namespace, 2 * REGIONS)[:2])

    assert [status.state for status in table_status(caller, wanted)] == [TableState.OK, TableState.MISSING]


@pytest.fixture
def apart(services: Services, tmp_path: Path) -> Path:
    """A program that runs classes in a JVM of their own, as HBase's own `hbase` does; what `make services` writes asks the server's."""
    program = tmp_path / "hbase-java"
    words = [sys.executable, "-m", "ops.services", "--dir", str(services.places.folder), "java", "--apart", "hbase"]
    program.write_text(f'#!/bin/sh\ncd {shlex.quote(str(ROOT))} && exec {shlex.join(words)} "$@"\n')
    program.chmod(0o755)
    return program


def test_tables_are_made_by_a_program_of_its_own(apart: Path, caller: DirectCaller, namespace: str) -> None:
    """On HBase's class path and settings, as on an operator's machine; with settings that the gateway cannot give."""
    wanted = layouts(namespace, REGIONS)[:1]

    assert TableAdmin(apart).create(wanted) == [wanted[0].name]
    assert {status.state for status in table_status(caller, wanted)} == {TableState.OK}


def test_region_that_cannot_be_is_refused_in_words(admin: TableAdmin, namespace: str) -> None:
    """By HBase, and told with the program's exit code."""
    (first, *_) = layouts(namespace, REGIONS)

    with pytest.raises(BackendError, match=r"HBase's tables: TableAdmin: .*split"):
        admin.create([replace(first, splits=(b"a", b"a"))])


def test_command_creates_and_shows(
    services: Services, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`iothub hbase`: 3 while tables are missing, 0 afterwards, 4 for another layout, 7 when nobody listens."""
    file = tmp_path / "iothub.toml"

    def hbase(*words: str, port: int = services.ports.thrift, regions: int = REGIONS, queues: str = "hbase") -> int:
        file.write_text(
            f'[hbase]\nthrift = ["{HOST}:{port}"]\nnamespace = "{namespace}"\nregions = {regions}\n'
            f'admin_program = "{services.places.folder / "hbase-java"}"\n'
            f'[queues]\ndriver = "{queues}"\n[state]\ndriver = "hbase"\n'
        )
        return run(["--config", str(file), "hbase", *words])

    assert hbase("status") == 3
    assert "create them: iothub hbase create-tables" in capsys.readouterr().err
    assert hbase("create-tables", "--dry-run", "-o", "json", queues="sqlite") == 0
    assert len(json.loads(capsys.readouterr().out)["created"]) == 2  # what only queues need is left out
    assert hbase("create-tables", queues="sqlite") == 0
    assert f"created {namespace}:state, " in capsys.readouterr().err
    assert hbase("create-tables", queues="sqlite") == 0
    assert "nothing to do" in capsys.readouterr().err
    assert hbase("status", "-o", "json", queues="sqlite") == 0
    assert {row["state"] for row in json.loads(capsys.readouterr().out)} == {"ok"}
    assert hbase("status") == 3
    assert hbase("create-tables") == 0
    assert hbase("status") == 0
    assert hbase("status", regions=8) == 4
    assert hbase("create-tables", port=1) == 7
    assert "Connection refused" in capsys.readouterr().err
