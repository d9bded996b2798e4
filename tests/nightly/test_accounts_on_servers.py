"""The accounts on MariaDB and PostgreSQL: the same tests as on SQLite, every one that works on a database."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ops.services.services import Services
from tests.support.servers.fresh_tables import SERVER_VARIABLE
from tests.support.servers.sql_servers import SERVERS, own_database

FEWEST = 150  # tests of the suite that use a database; fewer would mean that they were lost on the way
_SUITE = ("tests/unit/tenants/accounts", "--timeout=60", "-q", "-p", "no:randomly")


@pytest.fixture(params=SERVERS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    services = Services(say=print)
    was_down = any((report.name, report.state) == (request.param, "down") for report in services.reports())
    services.up(request.param)
    with own_database(services, request.param) as made:
        yield made
    if was_down:
        services.down(request.param)


def test_suite_of_the_accounts_passes_on_a_server(url: str) -> None:
    """In a run of its own, whose last lines tell what failed."""
    environment = {**os.environ, SERVER_VARIABLE: url}
    command = [sys.executable, "-m", "pytest", *_SUITE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)

    passed = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0, done.stdout[-6000:]
    assert passed
    assert int(passed[1]) >= FEWEST
