"""A start whose servers fail, or refuse for good, in the middle of the loading of many sessions: it waits and goes on, or says why it ends."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from iothub.base.units import Endpoint
from iothub.records import keys
from iothub_services.hbase.table_admin import TableAdmin
from iothub_services.hbase.tables import layouts
from iothub_services.queues.hbase.store import COPROCESSOR_MISSING
from ops.services.places import HOST
from ops.services.services import Services
from tests.support.clients.clients import Listener
from tests.support.clients.mqtt_clients import Clients
from tests.support.hbase import table_calls
from tests.support.hbase.hanging_gateway import HangingGateway
from tests.support.hbase.own_tables import caller_of, drop_tables
from tests.support.hubs.hub import Hub
from tests.support.hubs.kafka_hub import readiness
from tests.support.hubs.many_sessions import acme_id, leave_many
from tests.support.hubs.server_hub import REGIONS, TIMEOUT_S, Stores, own_stores, server_hub
from tests.support.night import at_night, by_day
from tests.support.waiting import PATIENCE_S, until

SESSIONS = by_day(5_000, 20_000)
NARROW = 300  # queues whose limits the start changes one by one: so it lasts
READY_S = by_day(10.0, 40.0)  # what was not answered is asked again
STOP_S = 5.0
STATES, ALL = "sessions are being loaded from HBase and Kafka", "sessions are being loaded from the stores"


@pytest.fixture(scope="module")
def stores(_servers: Services) -> Iterator[Stores]:
    with own_stores(_servers) as made:
        yield made


@pytest.fixture(scope="module")
def made(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    hub = server_hub(tmp_path_factory.mktemp("hub"), stores)
    leave_first(hub)
    leave_many(hub, stores, SESSIONS, NARROW)
    return hub


def leave_first(hub: Hub) -> None:
    """Have a session of a client's own."""
    hub.start()
    clients = Clients(Listener(hub, "tcp"))
    clients(5, "first", keep=True)
    clients.leave()
    assert hub.stop() == 0


@pytest.fixture
def hub(made: Hub, services: Services) -> Iterator[Hub]:
    """Not started; HBase goes on afterwards, whatever the test has done to it."""
    yield made
    made.close()
    services.up("hbase")


def is_logged(hub: Hub, words: str) -> Callable[[], bool]:
    return lambda: words in readiness(hub)[1]


def pause_at(services: Services, hub: Hub, moment: str) -> None:
    """Pause HBase, gateway and all, when `/readyz` says that the loading is so far."""
    until(is_logged(hub, moment), moment)
    services.pause("hbase")
    assert moment in readiness(hub)[1], "the pause came too late"


@pytest.mark.parametrize("moment", [ALL, *at_night(STATES)])
def test_start_waits_for_hbase_in_the_middle_and_goes_on(services: Services, hub: Hub, moment: str) -> None:
    """With the reason; as soon as HBase does; and every session is there."""
    hub.launch()
    pause_at(services, hub, moment)
    until(is_logged(hub, f"{services.ports.thrift} has not answered"), "the reason", 5 * TIMEOUT_S)
    until(is_logged(hub, "the hub is starting: waiting for"), "the start waits", 5 * TIMEOUT_S)
    assert hub.is_running()

    services.resume("hbase")

    resumed = time.monotonic()
    until(lambda: readiness(hub)[0], "the hub is ready", READY_S)
    sys.stdout.write(f"ready {time.monotonic() - resumed:.1f} s after the pause, with {SESSIONS + 1} sessions\n")
    assert len(hub.rows("session", "list", "acme", "--limit", str(2 * SESSIONS))) == SESSIONS + 1
    clients = Clients(Listener(hub, "tcp"))
    for client_id in ("first", "many-0", f"many-{SESSIONS - 1}"):
        assert clients(5, client_id, keep=True).connack.session_present
    clients.leave()
    assert hub.stop() == 0
    assert "Traceback" not in hub.log


def test_hub_that_is_not_to_wait_ends_when_hbase_is_paused_in_the_middle(services: Services, hub: Hub) -> None:
    """Exit code 7, and the reason."""
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(hub.start_impatiently)
        pause_at(services, hub, ALL)
        refused = ending.result()

    assert refused.returncode == 7
    assert f"{services.ports.thrift} has not answered" in refused.stderr.splitlines()[-1]


def test_hub_that_is_told_to_stop_while_it_waits_in_the_middle_stops(services: Services, hub: Hub) -> None:
    """Exit code 0, soon, though HBase says nothing."""
    hub.launch()
    pause_at(services, hub, ALL)
    until(is_logged(hub, "has not answered"), "the reason", 5 * TIMEOUT_S)

    began = time.monotonic()
    assert hub.stop() == 0
    assert time.monotonic() - began < STOP_S


@pytest.fixture
def hanging(made: Hub, services: Services) -> Iterator[HangingGateway]:
    """The only gateway of the hub, which stops in the middle when it is told to."""
    alone, gateway = made.environment, HangingGateway(Endpoint(HOST, services.ports.thrift))
    made.environment = {**alone, "IOTHUB_HBASE__THRIFT": f'["{gateway.address}"]'}
    yield gateway
    made.close()
    made.environment = alone
    gateway.close()


@pytest.mark.parametrize("table", ["queue_index", *at_night("state")])
def test_refusal_in_the_middle_that_no_waiting_mends_ends_the_start(
    services: Services, made: Hub, stores: Stores, hanging: HangingGateway, table: str
) -> None:
    """Exit code 7 and HBase's own words: a table was disabled since it was looked at. What is loaded by then is as it was."""
    name = f"{stores.namespace}:{table}".encode()
    tenant = re.escape(
        b"\0\0\0\4" + keys.tenant_key(acme_id(made))
    )  # its queues are listed; all queues are looked at before
    within = rb".{0,32}" + tenant if table == "queue_index" else rb"\W"
    hanging.hang_at = re.compile(rb"scannerOpenWithScan.{0,64}:" + table.encode() + within, re.DOTALL)
    made.launch()
    until(lambda: hanging.is_hung, "the loading has begun")
    assert "sessions are being loaded" in readiness(made)[1]
    with caller_of(services, timeout_s=PATIENCE_S) as caller:
        caller.call(table_calls.disable_table(name))
        try:
            hanging.let_go()
            assert made.process is not None
            assert made.process.wait(PATIENCE_S) == 7
        finally:
            caller.call(table_calls.enable_table(name))

    last = made.log.splitlines()[-1]
    assert last.startswith("iothub: HBase refused")
    assert "TableNotEnabledException" in last
    assert "Traceback" not in made.log


def test_start_without_the_coprocessor_ends_no_session(services: Services, tmp_path: Path) -> None:
    """Without it every queue seems to be missing: the start fails and names the cause. Stores of its own, because the queues are really gone."""
    with own_stores(services) as stores:
        hub = server_hub(tmp_path, stores)
        leave_first(hub)
        table = f"{stores.namespace}:queues"
        plain = [replace(each, settings={}) for each in layouts(stores.namespace, REGIONS) if each.name == table]
        drop_tables(services, [table.encode()])
        TableAdmin(services.places.folder / "hbase-java").create(plain)

        hub.launch()
        try:
            assert hub.process is not None
            assert hub.process.wait(PATIENCE_S) == 7
        finally:
            hub.close()
        assert hub.log.splitlines()[-1] == (
            f"iothub: {REGIONS} of {REGIONS} regions of {table} answer without the queue coprocessor; {COPROCESSOR_MISSING}"
        )
        output = hub.run("events", "tail").stdout
        assert "first" in output
        assert "session.discarded" not in output
