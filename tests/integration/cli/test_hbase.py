"""`iothub hbase` without HBase: what is missing is said, with its exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.cli.main import run


def test_without_a_gateway_the_setting_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2: the configuration."""
    assert run(["--data-dir", str(tmp_path), "hbase", "status"]) == 2

    assert "set hbase.thrift" in capsys.readouterr().err


def test_unreachable_gateway_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 7, one line, with the address."""
    file = tmp_path / "iothub.toml"
    file.write_text('[hbase]\nthrift = ["127.0.0.1:1"]\n[state]\ndriver = "hbase"\n')

    assert run(["--config", str(file), "hbase", "create-tables"]) == 7

    err = capsys.readouterr().err
    assert err.startswith("iothub: HBase's gateway 127.0.0.1:1 cannot be reached (")
    assert err.endswith("Connection refused)\n")
    assert err.count("\n") == 1


def test_settings_that_need_no_table_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing would be made, so the settings that choose HBase are named."""
    file = tmp_path / "iothub.toml"
    file.write_text('[hbase]\nthrift = ["127.0.0.1:1"]\n')

    assert run(["--config", str(file), "hbase", "create-tables"]) == 2

    assert 'set queues.driver, state.driver or retained.driver to "hbase"' in capsys.readouterr().err
