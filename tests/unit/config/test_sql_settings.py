"""The file with the url of the accounts is looked at before the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.config.check import check_start
from iothub.config.loader import load


def test_url_file_is_there_and_its_owners_alone(tmp_path: Path) -> None:
    """A missing one is an error; one that others can read, with the password in it, a warning."""
    url_file = tmp_path / "accounts.url"
    config = load(file=None, environment={}, flags=(f"sql.url_file={url_file}",)).config
    with pytest.raises(ConfigError, match=r"sql\.url_file: .*No such file"):
        check_start(config)

    url_file.write_text("mysql+pymysql://iothub:secret@db/iothub\n")
    url_file.chmod(0o644)
    assert check_start(config) == [f"sql.url_file: {url_file} can be read by others; run `chmod 600 {url_file}`"]
    url_file.chmod(0o600)
    assert check_start(config) == []
