"""What the client does shows on /metrics."""

from __future__ import annotations

from iothub_services.hbase import calls
from iothub_services.hbase.metering import RegistryMeter
from iothub_services.metrics.exposition import Registry
from tests.unit.hbase.conftest import MakeClient, World


def test_calls_and_connections_are_shown(world: World, make_client: MakeClient) -> None:
    """By verb and result; connections by state; what is in flight."""
    registry = Registry()
    meter = RegistryMeter(registry)
    client = make_client(lanes_each=2, meter=meter)
    meter.watch(client)
    world.accept()
    client.call(calls.append(b"t", b"r", b"f:a", b"x"))
    world.advance(0.02)
    world.serve()
    client.call(calls.get_row(b"t", b"r"))

    page = registry.render().decode()

    assert 'iothub_hbase_requests_total{op="append",result="answered"} 1' in page
    assert 'iothub_hbase_request_duration_seconds_count{op="append"} 1' in page
    assert 'iothub_hbase_connections{state="up"} 2' in page
    assert 'iothub_hbase_connections{state="down"} 0' in page
    assert "iothub_hbase_in_flight 1" in page
