"""The section `[hbase]`: what it says reaches the client, and what that does shows on /metrics."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError
from iothub.base.units import Endpoint
from iothub.config.loader import load
from iothub.config.sections import HBase
from iothub_services.hbase import calls, from_settings
from iothub_services.metrics.exposition import Registry
from tests.unit.hbase.conftest import World
from tests.unit.hbase.test_connection import Sink


def settings(*flags: str) -> HBase:
    return load(file=None, environment={}, flags=flags).config.hbase


def test_client_has_the_connections_and_bounds_that_are_set(world: World) -> None:
    """Connections to each gateway; both kinds of address."""
    given = settings("hbase.thrift=one:9090,[::1]:9091", "hbase.connections=3", "hbase.in_flight=5", "hbase.timeout=2s")

    client = from_settings.client(given, world, Registry())

    assert [str(each.gateway) for each in client.connections] == ["one:9090", "[::1]:9091"] * 3
    assert (client.bounds.in_flight, client.bounds.timeout_s, client.bounds.frame_bytes) == (5, 2.0, 16 << 20)


def test_without_a_gateway_it_is_said_what_to_set() -> None:
    """Exit code 2, not a connection to nowhere."""
    with pytest.raises(ConfigError, match=r'set hbase\.thrift to its Thrift gateways, such as \["127\.0\.0\.1:9090"\]'):
        from_settings.direct_caller(settings())


@pytest.mark.parametrize("text", ["host", "host:0", "host:70000", "::1:9090", "a b:1", "[x]:1"])
def test_bad_gateway_is_refused(text: str) -> None:
    """At the start, with what was expected."""
    with pytest.raises(ConfigError, match="expected host:port"):
        settings(f"hbase.thrift={text}")


def test_bad_namespace_is_refused() -> None:
    """HBase takes letters, digits and underscores only."""
    with pytest.raises(ConfigError, match="letters, digits and underscores"):
        settings("hbase.namespace=my-hub")


def test_gateways_are_kept_once() -> None:
    """The same one twice is one."""
    assert settings("hbase.thrift=a:1,a:1").thrift == (Endpoint("a", 1),)
    assert (
        settings('hbase.thrift=["[::1]:1"]').thrift == settings("hbase.thrift=[::1]:1").thrift == (Endpoint("::1", 1),)
    )


def test_calls_and_connections_are_shown(world: World) -> None:
    """By verb and result; connections by state; what is in flight."""
    registry = Registry()
    client = from_settings.client(settings("hbase.thrift=one:9090", "hbase.connections=2"), world, registry)
    client.open()
    world.accept()
    client.begin([calls.append(b"t", b"r", b"f:a", b"x")], Sink())
    world.advance(0.02)
    world.serve()
    client.begin([calls.get_row(b"t", b"r")], Sink())

    page = registry.render().decode()

    assert 'iothub_hbase_requests_total{op="append",result="answered"} 1' in page
    assert 'iothub_hbase_request_duration_seconds_count{op="append"} 1' in page
    assert 'iothub_hbase_connections{state="up"} 2' in page
    assert 'iothub_hbase_connections{state="down"} 0' in page
    assert "iothub_hbase_in_flight 1" in page
