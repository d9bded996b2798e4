"""--limit and --after of the lists of the accounts: all rows without them, page after page with them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from iothub.cli.main import run
from tests.support.in_process.command import Cli, Result

URL = "https://example.org/in"


@pytest.fixture(scope="module")
def full_template(acme_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three of everything that can be listed."""
    path = tmp_path_factory.mktemp("template") / "full"
    shutil.copytree(acme_template, path)
    for number in (1, 2, 3):
        for line in (
            f"tenant create beta{number}",
            f"device create acme more{number}",
            f"group create acme group{number}",
            f"acl allow acme more{number} publish a/b",
            f"ban add acme device more{number}",
            f"quota set acme device_publish_messages={number}/1s --device more{number}",
            f"plan create plan{number} connections=5",
            f"webhook create hook{number} {URL} --tenant acme",
            f"admin key create key{number} --role viewer",
            f"admin user create user{number} --role viewer --generate",
        ):
            assert run(["--data-dir", str(path), *line.split()]) == 0, line
    return path


@pytest.fixture
def full(full_template: Path, tmp_path: Path, call: Callable[..., Result]) -> Cli:
    """A copy of it for each test."""
    shutil.copytree(full_template, tmp_path / "hub")
    return Cli(tmp_path / "hub", call)


@pytest.mark.parametrize(
    "words",
    [
        "tenant list",
        "device list acme",
        "group list acme",
        "acl list acme",
        "acl list acme more1",
        "ban list acme",
        "quota list acme",
        "plan list",
        "webhook list --tenant acme",
        "admin key list",
        "admin user list",
    ],
)
def test_pages_are_together_the_whole_list(full: Cli, words: str) -> None:
    """Each but the last one says how to go on, in words that can be pasted."""
    whole = full.rows(*words.split())
    paged, more = [], ["--limit=2"]
    while more:
        result = full(*words.split(), "-o", "json", *more, "--limit=2")
        paged.append(result.json)
        more = result.err.partition("continue with ")[2].split()

    assert [row for page in paged for row in page] == whole
    assert {len(page) for page in paged[:-1]} <= {2}
    assert full(*words.split(), "--limit", str(len(whole))).err == ""


def test_list_without_a_limit_is_whole(full: Cli) -> None:
    assert [row["name"] for row in full.rows("device", "list", "acme")] == ["dev1", "more1", "more2", "more3"]
    assert [row["name"] for row in full.rows("device", "list", "acme", "--after", "more1")] == ["more2", "more3"]


def test_list_by_name_goes_on_after_a_name_that_is_gone(full: Cli) -> None:
    assert [row["name"] for row in full.rows("group", "list", "acme", "--after", "group11")] == ["group2", "group3"]


def test_list_in_another_order_does_not_go_on_after_a_row_that_is_gone(full: Cli) -> None:
    result = full("acl", "list", "acme", "--after", "99", code=3)

    assert "iothub: --after '99': not in this list, or not any more; start again without --after" in result.err
    assert result.out == ""
