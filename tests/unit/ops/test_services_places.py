"""Ports, folders, pins and the hub's settings of the real servers."""

from __future__ import annotations

import os
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from ops.services.errors import ServicesError
from ops.services.hub_settings import hub_settings, write_hub_settings
from ops.services.places import PORTS_BELOW, ROOT, Places, Ports, pinned, places_here, pom, ports_here


def _all(ports: Ports) -> list[int]:
    names = [name for name, value in vars(Ports).items() if isinstance(value, property)]
    assert names
    assert [field.name for field in fields(ports)] == ["shift"]
    return [getattr(ports, name) for name in names]


def test_ports_differ_and_stay_below_the_kernels_own() -> None:
    """Above it an outgoing connection may already sit on one of them; also with the largest shift."""
    for ports in (Ports(), Ports(10), Ports(10_000)):
        found = _all(ports)
        assert len(set(found)) == len(found)
        assert max(found) < PORTS_BELOW


def test_shifted_ports_share_none_with_the_others() -> None:
    """Two sets of servers run beside each other."""
    assert set(_all(Ports())).isdisjoint(_all(Ports(10)))


@pytest.mark.parametrize("shift", [-10, 5, 10_010])
def test_shift_out_of_range_is_refused(shift: int) -> None:
    """Steps of ten, so that no two sets overlap."""
    with pytest.raises(ServicesError, match=f"not by {shift}"):
        Ports(shift)


def test_default_folder_is_ignored_by_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data of servers must never be committed."""
    monkeypatch.delenv("IOTHUB_SERVICES_DIR", raising=False)

    assert places_here().folder == ROOT / ".services"
    assert "/.services" in (ROOT / ".gitignore").read_text().splitlines()  # a symlink, too


def test_folder_and_ports_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For a second set of servers, in tests as in the shell."""
    monkeypatch.setenv("IOTHUB_SERVICES_DIR", str(tmp_path))
    monkeypatch.setenv("IOTHUB_SERVICES_SHIFT", "100")

    assert places_here() == Places(tmp_path)
    assert ports_here(places_here()) == Ports(100)


def test_ports_are_those_of_the_last_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who asks for the status need not say the shift again."""
    monkeypatch.delenv("IOTHUB_SERVICES_SHIFT", raising=False)
    assert ports_here(Places(tmp_path)) == Ports(0)

    (tmp_path / "shift").write_text("20")

    assert ports_here(Places(tmp_path)) == Ports(20)


def test_shift_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One line that names the variable."""
    monkeypatch.setenv("IOTHUB_SERVICES_SHIFT", "many")

    with pytest.raises(ServicesError, match="IOTHUB_SERVICES_SHIFT"):
        ports_here(Places(tmp_path))


def test_versions_are_read_from_the_poms() -> None:
    """The poms are the only place with versions."""
    assert pinned(pom("hbase"), "hbase.version").startswith(pinned(pom("hbase"), "hbase.thrift.version"))
    with pytest.raises(ServicesError, match=r"no\.such"):
        pinned(pom("kafka"), "no.such")


def test_hub_settings_choose_the_servers_for_every_need(tmp_path: Path) -> None:
    """Every driver and every address; written whole."""
    write_hub_settings(Places(tmp_path), Ports(10))

    settings = tomllib.loads((tmp_path / "iothub.toml").read_text())
    assert settings["config_version"] == 1
    drivers = {name: settings[name]["driver"] for name in ("queues", "events", "state", "retained")}
    assert drivers == {"queues": "hbase", "events": "kafka", "state": "hbase", "retained": "hbase"}
    assert settings["hbase"]["thrift"] == ["127.0.0.1:19100"]
    assert settings["kafka"]["brokers"] == ["127.0.0.1:19102"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "hbase-java",
        "iothub.toml",
        "mariadb.url",
        "postgresql.url",
    ]
    assert settings["hbase"]["admin_program"] == "hbase-java"  # beside the file, and to be run
    assert (tmp_path / "hbase-java").stat().st_mode & 0o111


def test_urls_of_the_sql_servers_are_their_owners_alone(tmp_path: Path) -> None:
    """They hold passwords, as anybody's would."""
    write_hub_settings(Places(tmp_path), Ports(10))

    assert (tmp_path / "mariadb.url").read_text() == "mysql+pymysql://iothub:iothub@127.0.0.1:19108/iothub\n"
    assert (tmp_path / "postgresql.url").stat().st_mode & 0o777 == 0o600


def test_server_whose_user_cannot_enter_the_folder_lies_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout in /root, for root: MariaDB and PostgreSQL run as users of their own, who may not enter it."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    tmp_path.chmod(0o700)
    places = Places(tmp_path / "services")

    assert places.of("redis") == places.folder / "redis"
    assert places.of("mariadb").parts[:3] == ("/", "var", "tmp")
    assert places.of("mariadb") == Places(tmp_path / "services").of("mariadb")
    assert places.of("mariadb") != Places(tmp_path / "others").of("mariadb")


def test_folder_that_everybody_may_enter_holds_all() -> None:
    """The usual case, and everybody's who is not root."""
    assert Places(Path("/usr/services")).of("mariadb") == Path("/usr/services/mariadb")


def test_hub_settings_have_one_copy_of_each_record() -> None:
    """One broker cannot hold more, and refuses to create the topic."""
    assert tomllib.loads(hub_settings(Ports()))["kafka"]["replication"] == 1
