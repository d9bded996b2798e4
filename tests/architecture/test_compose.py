"""`compose.yaml` and `make services` are two ways to the same servers: versions, ports and settings agree."""

from __future__ import annotations

from typing import cast

import pytest
import yaml

from ops.services.hub_settings import hub_settings
from ops.services.packaged import PACKAGED
from ops.services.places import SQL_ACCOUNT, Ports, pinned, pom
from tests.architecture.tree import ROOT

Compose = dict[str, dict[str, dict[str, object]]]

# What the image decides by itself, or what lies elsewhere in it.
_OF_THE_IMAGE = {"CLUSTER_ID", "KAFKA_HEAP_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_LOG_DIRS"}


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, object]]:
    return cast("Compose", yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8")))["services"]


def _kafka_settings() -> dict[str, str]:
    """Return server.properties with the ports that `make services` fills in."""
    ports = Ports()
    text = (ROOT / "ops/kafka/server.properties").read_text(encoding="utf-8")
    text = text.replace("${broker}", str(ports.kafka)).replace("${controller}", str(ports.kafka_controller))
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


def test_kafka_image_is_the_version_of_the_pom(services: dict[str, dict[str, object]]) -> None:
    """One pin, in ops/kafka/pom.xml."""
    assert services["kafka"]["image"] == f"apache/kafka:{pinned(pom('kafka'), 'kafka.version')}"


def test_kafka_has_the_same_settings(services: dict[str, dict[str, object]]) -> None:
    """The image makes `log.dirs` of KAFKA_LOG_DIRS."""
    environment = cast("dict[str, str]", services["kafka"]["environment"])
    named = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in environment.items()
        if name not in _OF_THE_IMAGE
    }
    ours = {name: value for name, value in _kafka_settings().items() if name != "log.dirs"}

    assert named == ours


def test_hbase_is_built_from_our_pom(services: dict[str, dict[str, object]]) -> None:
    """There is no official image, so the version is the pom's own; the Java is the one that the pom compiles for."""
    image = cast("str", services["hbase"]["image"])
    script = cast("list[str]", services["hbase"]["command"])[-1]

    assert image.endswith(f"-{pinned(pom('hbase'), 'maven.compiler.release')}")
    assert "ops/hbase" in script
    assert "iothub.hbase.server.SingleServer" in script


def test_hbase_listens_where_the_hub_looks(services: dict[str, dict[str, object]]) -> None:
    """The properties of hbase-site.xml, each of them, with the ports of `make services`."""
    ports = Ports()
    given = cast("dict[str, str]", services["hbase"]["environment"])["HBASE_OPTIONS"].split()
    expected = {
        "-Diothub.dir=/data",
        f"-Diothub.zookeeper.port={ports.zookeeper}",
        f"-Diothub.master.port={ports.hbase_master}",
        f"-Diothub.regionserver.port={ports.hbase_regionserver}",
        f"-Diothub.thrift.port={ports.thrift}",
    }

    assert {word for word in given if word.startswith("-D")} == expected
    assert f'thrift = ["127.0.0.1:{ports.thrift}"]' in hub_settings(ports)


def _options(command: object, separator: str) -> dict[str, str]:
    """Return `--name=value` words of a command as settings, `-` and `_` alike. Redis wants a blank there, in one word of the command."""
    words = [word.removeprefix("--").partition(separator) for word in cast("list[str]", command) if separator in word]
    return {name.replace("-", "_"): value for name, _, value in words}


def _ours(name: str, separator: str, port: int) -> dict[str, str]:
    text = (ROOT / "ops" / name).read_text(encoding="utf-8").replace("${port}", str(port))
    lines = [line for line in text.splitlines() if line and line[0] not in "#["]
    pairs = [line.partition(separator) for line in lines]
    return {name.strip().replace("-", "_"): value.strip().strip("'") for name, _, value in pairs}


@pytest.mark.parametrize(
    ("name", "file", "separator"),
    [
        ("redis", "redis/redis.conf", " "),
        ("mariadb", "mariadb/my.cnf", "="),
        ("postgresql", "postgresql/postgresql.conf", "="),
    ],
)
def test_packaged_servers_have_the_same_settings(
    services: dict[str, dict[str, object]], name: str, file: str, separator: str
) -> None:
    """The images are of the series that the distribution has; only where files lie is theirs."""
    ours = _ours(file, separator, PACKAGED[name].port(Ports()))
    only_here = {"daemonize", "set_proc_title"}  # how our own program finds the process again
    only_here |= {
        "unix_socket_directories"
    }  # the image makes its first database through a socket, with the same options

    assert _options(services[name]["command"], separator) == {
        key: value for key, value in ours.items() if key not in only_here
    }


def test_sql_images_have_the_hubs_account(services: dict[str, dict[str, object]]) -> None:
    """The same url leads to both."""
    for name, prefix in (("mariadb", "MARIADB"), ("postgresql", "POSTGRES")):
        environment = cast("dict[str, str]", services[name]["environment"])
        account = {environment[f"{prefix}_{word}"] for word in ("USER", "PASSWORD")}
        assert account == {SQL_ACCOUNT}


@pytest.mark.parametrize("name", ["kafka", "hbase", "redis", "mariadb", "postgresql"])
def test_nothing_is_reachable_from_other_machines(services: dict[str, dict[str, object]], name: str) -> None:
    """Host networking with loopback listeners: no `ports:` that would open them to everybody."""
    assert services[name]["network_mode"] == "host"
    assert "ports" not in services[name]


@pytest.mark.parametrize("name", ["kafka", "hbase"])
def test_versions_are_exact(name: str) -> None:
    """A range would bring a different server one day."""
    text = pom(name).read_text(encoding="utf-8")

    assert "[" not in text.replace("<![CDATA[", "")
    assert "LATEST" not in text
    assert "SNAPSHOT" not in text
