"""What several checks import is there before they are taken: modules that import each other in circles refuse threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from iothub.config.datadir import DataDir
from iothub.config.sections import Config, Sql
from iothub.doctor.libraries import load

_LOADED = """
import sys
from pathlib import Path
from iothub.config.loader import load as read
from iothub.config.datadir import DataDir
from iothub.doctor.libraries import load

load(DataDir(Path(sys.argv[1])), read(flags=sys.argv[2:]).config)
print(*sorted({"kafka", "redis", "pymysql"} & sys.modules.keys()))
"""


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], ""),
        (["kafka.brokers=127.0.0.1:1"], "kafka"),
        (["redis.addresses=127.0.0.1:1", "sql.url_file=URL"], "pymysql redis"),
    ],
)
def test_what_the_settings_need_is_imported_and_no_more(tmp_path: Path, flags: list[str], expected: str) -> None:
    url = tmp_path / "url"
    url.write_text("mysql+pymysql://iothub@127.0.0.1:1/iothub")
    given = [flag.replace("URL", str(url)) for flag in flags]

    done = subprocess.run(
        [sys.executable, "-c", _LOADED, str(tmp_path), *given], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == expected


def test_what_cannot_be_loaded_is_left_to_a_look(tmp_path: Path) -> None:
    load(DataDir(tmp_path), Config(sql=Sql(url_file=tmp_path / "none")))
