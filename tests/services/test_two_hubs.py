"""Two hubs that live at the same time on one HBase, one Kafka and one accounts database (B39)."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import pytest

from iothub.base.units import Endpoint
from ops.services.places import HOST
from ops.services.services import Services
from tests.support.clients.clients import Listener
from tests.support.clients.mqtt_clients import Clients
from tests.support.clients.packets import DISCONNECT, SUBACK
from tests.support.hbase.hanging_gateway import HangingGateway
from tests.support.hubs.hub import Hub
from tests.support.hubs.kafka_hub import readiness
from tests.support.hubs.server_hub import own_stores
from tests.support.hubs.two_hubs import Pair, pair_of_hubs, run_pair
from tests.support.night import by_day
from tests.support.waiting import PATIENCE_S, comes_true, until

RESTORED_S = 30.0  # a hub that was taken for dead begins again within 25 s
TOGETHER_S = 2.0
PROMPT_S = 1.0  # a tenth of the time between two looks at the tails
KILLS, KILLS_S = by_day((2, 8.0), (4, 32.0))  # by day each of the two once

At = Callable[[Hub], Clients]


@pytest.fixture(scope="module")
def made(_servers: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with own_stores(_servers) as stores, pair_of_hubs(tmp_path_factory.mktemp("pair"), stores) as pair:
        yield pair


@pytest.fixture
def pair(made: Pair) -> Pair:
    """Both hubs, running and linked, whatever a test that has failed left of them."""
    for hub in (made.first, made.second):
        if not hub.is_running():
            hub.start()
    if not comes_true(lambda: are_linked(made), RESTORED_S):
        for hub in (made.first, made.second):
            hub.close()
            hub.start()
        until(lambda: are_linked(made), "both links are up", RESTORED_S)
    return made


@pytest.fixture
def at() -> Iterator[At]:
    """Connects clients to one hub."""
    opened: list[Clients] = []

    def clients_of(hub: Hub) -> Clients:
        opened.append(Clients(Listener(hub, "tcp")))
        return opened[-1]

    yield clients_of
    for clients in opened:
        clients.leave()


def row(hub: Hub, client_id: str) -> dict[str, object]:
    """What `iothub session list` says of one session."""
    return next(row for row in hub.rows("session", "list", "acme") if row["name"] == client_id)


def test_hubs_are_linked_both_ways_and_again_after_a_kill(pair: Pair) -> None:
    """`cluster status` of each shows the other one as `up`; a hub that was killed comes back under a new incarnation."""
    until(lambda: are_linked(pair), "both links are up")

    pair.second.kill()
    until(lambda: states(pair.first).get(2) in {"down", "gone"}, "the link is down")
    pair.second.start()

    until(lambda: are_linked(pair), "both links are up")
    assert json.loads(pair.first.run("status", "-o", "json").stdout)["links"] == {"up": 1, "hubs": 1}


def states(hub: Hub) -> dict[int, str]:
    """The hubs of the accounts as this one sees them; none while it begins again."""
    done = hub.run("-o", "json", "cluster", "status", check=False)
    return {row["node"]: row["state"] for row in json.loads(done.stdout)} if done.returncode == 0 else {}


def are_linked(pair: Pair) -> bool:
    """Tell whether each hub sees both."""
    return states(pair.first) == states(pair.second) == {1: "up", 2: "up"}


def test_hub_that_is_drained_from_the_other_one_sends_its_clients_there(pair: Pair, at: At) -> None:
    """Use another server; the session is there, and the hub takes clients again when it is resumed."""
    until(lambda: states(pair.first).get(2) == "up", "the link is up")
    kept, old = at(pair.second)(5, "drained", keep=True), at(pair.second)(4)
    kept.subscribe(("drained", 1))

    pair.first.run("cluster", "drain", "2")

    assert [(packet.kind, packet.code) for packet in kept.expect_closed()] == [(DISCONNECT, 0x9C)]
    assert old.expect_closed() == []
    assert states(pair.first)[2] == states(pair.second)[2] == "draining"
    assert "the hub is draining" in readiness(pair.second)[1]
    moved = at(pair.first)(5, "drained", keep=True)
    assert moved.connack.session_present
    at(pair.first)(5, device="dev2").publish("drained", b"x", qos=1)
    assert moved.payloads() == [b"x"]

    pair.first.run("cluster", "resume", "2")

    assert states(pair.first)[2] == "up"
    at(pair.second)(5)


@pytest.mark.parametrize("is_forward", [True, False], ids=["first", "second"])
def test_what_the_other_hub_accepts_reaches_a_session_whose_hub_was_killed(
    pair: Pair, at: At, is_forward: bool
) -> None:
    """A session that began after both had started; its hub is killed; the other one accepts; it comes back to either (B39)."""
    mine, other = (pair.first, pair.second) if is_forward else (pair.second, pair.first)
    client_id, topic = f"b39-{is_forward}", f"b39/{is_forward}"
    subscriber = at(mine)(5, client_id, keep=True)
    subscriber.subscribe((f"{topic}/#", 2))
    publisher = at(other)(5, device="dev2")
    sent = []
    for number in range(30):
        if number == 10:
            mine.kill()
        if number == 20:
            mine.start()
        sent.append(b"%d" % number)
        publisher.publish(f"{topic}/x", sent[-1], qos=1 + number % 2)

    back = at(other)(5, client_id, keep=True)
    first = back.payloads(15)
    back.drop()
    home = at(mine)(5, client_id, keep=True)

    assert back.connack.session_present
    assert home.connack.session_present
    assert first + home.payloads(15) == sent
    home.nothing()


def test_message_reaches_a_client_that_is_connected_to_the_other_hub(pair: Pair, at: At) -> None:
    """Subscribed just before it is published: from the SUBACK on every hub routes by it; in order, once."""
    subscriber = at(pair.first)(5, "online", keep=True)
    publishers = [at(hub)(5, device="dev2") for hub in (pair.second, pair.first)]
    sent = []
    for round_ in range(5):
        subscriber.subscribe((f"online/{round_}", 2))
        for number in range(4):
            sent.append(b"%d/%d" % (round_, number))
            publishers[number % 2].publish(f"online/{round_}", sent[-1], qos=1 + number % 2)

    assert subscriber.payloads(len(sent)) == sent
    subscriber.nothing()


def test_subscribes_that_are_sent_together_wait_together(pair: Pair, at: At) -> None:
    """Twenty of one client, which wait for the other hub alone; and from each SUBACK on the other hub routes by it."""
    subscriber = at(pair.first)(5, "together", keep=True)
    publisher = at(pair.second)(5, device="dev2")
    began = time.monotonic()
    for number in range(1, 21):
        subscriber.send_subscribe((f"together/{number}", 1), packet_id=number)
    sent = []
    for number in range(1, 21):
        assert subscriber.expect(SUBACK).packet_id == number
        if number == 20:
            assert time.monotonic() - began < TOGETHER_S
        sent.append(b"%d" % number)
        publisher.publish(f"together/{number}", sent[-1], qos=1)

    assert subscriber.payloads(20) == sent


def test_client_is_taken_over_from_the_other_hub(pair: Pair, at: At) -> None:
    """The first hears 0x8E; its Will is published, once; what it had not acknowledged comes to the second with DUP; and back again."""
    watcher = at(pair.first)(5, "watcher", keep=True, device="dev2")
    watcher.subscribe(("will", 2))
    publisher = at(pair.second)(5, device="dev2")
    clients = [at(pair.first)(5, "taken", keep=True, will=("will", b"1", 2, False))]
    clients[0].subscribe(("a", 1))
    for number in range(3):
        publisher.publish("a", b"%d" % number, qos=1)
    seen = [[packet.payload for packet in clients[0].get(3)]]
    for hub in (pair.second, pair.first):
        clients.append(at(hub)(5, "taken", keep=True))
        clients[-2].refused(0x8E)
        packets = clients[-1].get(3)
        assert clients[-1].connack.session_present
        assert all(packet.dup for packet in packets)
        seen.append([packet.payload for packet in packets])

    assert seen == [[b"0", b"1", b"2"]] * 3
    assert watcher.payloads() == [b"1"]
    watcher.nothing()


def test_clean_start_at_one_hub_ends_the_session_at_the_other(pair: Pair, at: At) -> None:
    """Its subscriptions are gone at both, and the new session lasts: its epochs lie above the old one's, whoever gave out the ids.

    What was acknowledged just before the first took the session over may come there again, with DUP: at least once [MQTT-4.3.2-1].
    """
    for turn, hub in enumerate((pair.second, pair.first, pair.second)):
        before = at(pair.first)(5, "clean", keep=True)
        before.subscribe((f"old/{turn}", 1))
        client = at(hub)(5, "clean", clean=True, props=[(0x11, 3600)])
        assert [(packet.kind, packet.code) for packet in before.expect_closed() if not packet.dup] == [
            (DISCONNECT, 0x8E)
        ]
        assert not client.connack.session_present
        client.subscribe((f"new/{turn}", 1))
        for hub in (pair.first, pair.second):
            publisher = at(hub)(5, device="dev2")
            publisher.publish(f"old/{turn}", b"old", qos=1)
            publisher.publish(f"new/{turn}", b"new", qos=1)
        assert client.payloads(2) == [b"new", b"new"]
        client.nothing()
        client.drop()


def test_message_is_with_a_session_at_the_other_hub_within_a_second(pair: Pair, at: At) -> None:
    """The hub that stores it says so over the link: nothing waits for the next look at the tails of the queues."""
    until(lambda: are_linked(pair), "both links are up")
    subscriber, publisher = at(pair.first)(5, "prompt", keep=True), at(pair.second)(5, device="dev2")
    subscriber.subscribe(("prompt", 1))
    took_s = list[float]()
    for number in range(20):
        began = time.monotonic()
        publisher.publish("prompt", b"%d" % number, qos=1)
        assert subscriber.payloads() == [b"%d" % number]
        took_s.append(time.monotonic() - began)

    assert median(took_s) < PROMPT_S, took_s  # one may meet a machine that is busy


def test_change_of_qos_while_messages_flow_from_the_other_hub_loses_and_doubles_none(pair: Pair, at: At) -> None:
    """0 -> 1 -> 0 -> 1 by SUBSCRIBE: all that is published after the SUBACK for QoS 1 comes, and nothing comes by link and queue [MQTT-3.8.4-3]."""
    until(lambda: are_linked(pair), "both links are up")
    subscriber, publisher = at(pair.first)(5, "qos", keep=True), at(pair.second)(5, device="dev2")
    sent, promised, got = 0, set(), list[bytes]()
    for packet_id, qos in enumerate((0, 1, 0, 1), 101):
        subscriber.send_subscribe(("qos", qos), packet_id=packet_id)
        for number in range(20):
            if number == 10:
                assert subscriber.expect(SUBACK).packet_id == packet_id
            publisher.publish("qos", b"%d" % sent, qos=1)
            if number >= 10 and qos == 1:
                promised.add(b"%d" % sent)
            sent += 1
        while not promised.issubset(got):
            got += subscriber.payloads()
    subscriber.ping()
    got += [packet.payload for packet in subscriber.received]

    assert len(got) == len(set(got))


def test_unsubscribed_is_unsubscribed_at_both(pair: Pair, at: At) -> None:
    """From the UNSUBACK on."""
    client = at(pair.first)(5, "leaver", keep=True)
    client.subscribe(("left/#", 1))
    client.unsubscribe("left/#")

    at(pair.second)(5, device="dev2").publish("left/a", b"x", qos=1)

    client.nothing()


def test_start_and_stop_of_the_second_disturb_nobody_at_the_first(pair: Pair, at: At) -> None:
    """Connections stay, sessions and their queues stay, messages come; a session of the second goes on at the first."""
    online, offline = at(pair.first)(5, "stays", keep=True), at(pair.second)(5, "away", keep=True)
    for client in (online, offline):
        client.subscribe(("calm", 1))
    offline.drop()
    publisher = at(pair.first)(5, device="dev2")
    assert pair.second.stop() == 0
    publisher.publish("calm", b"0", qos=1)
    pair.second.start()
    publisher.publish("calm", b"1", qos=1)
    at(pair.second)(5, device="dev2").publish("calm", b"2", qos=1)

    assert online.payloads(3) == [b"0", b"1", b"2"]
    back = at(pair.first)(5, "away", keep=True)
    assert back.connack.session_present
    assert back.payloads(3) == [b"0", b"1", b"2"]
    assert "Traceback" not in pair.first.log + pair.second.log


def test_session_list_shows_the_sessions_of_both(pair: Pair, at: At) -> None:
    """Asked anywhere."""
    at(pair.first)(5, "listed-1", keep=True)
    at(pair.second)(5, "listed-2", keep=True)

    def are_connected(hub: Hub) -> bool:
        return all(row(hub, client_id)["is_connected"] for client_id in ("listed-1", "listed-2"))

    for hub in (pair.first, pair.second):
        until(partial(are_connected, hub), "both are connected")


def test_client_of_the_other_hub_is_listed_and_kicked(pair: Pair, at: At) -> None:
    """Over the link, with the number of the hub that has it."""
    for hub in (pair.first, pair.second):
        hub.stop()
        hub.start()
    until(lambda: are_linked(pair), "both links are up")
    at(pair.first)(5, "near")
    client = at(pair.second)(5, "far")

    nodes = {row["name"]: row["node"] for row in pair.first.rows("client", "list", "acme")}
    assert (nodes["near"], nodes["far"]) == (1, 2)
    pair.first.run("client", "kick", "acme", "far", "--yes")

    client.refused(0x98)
    assert "far" not in {row["name"] for row in pair.second.rows("client", "list", "acme")}


def test_commands_reach_both_hubs(pair: Pair, at: At) -> None:
    """Over links: what the other one has in memory, too. Hubs of which one was taken for dead are linked after a restart."""
    for hub in (pair.first, pair.second):
        hub.stop()
        hub.start()
    until(lambda: are_linked(pair), "both links are up")
    kept, short = at(pair.second)(5, "kept", keep=True), at(pair.second)(5, "short")
    kept.publish("mine/kept", b"x", qos=1, retain=True)

    for client_id, client in (("kept", kept), ("short", short)):
        pair.first.run("session", "discard", "acme", client_id, "--yes")
        client.refused(0x98)
    pair.first.run("retain", "delete", "acme", "mine/#", "--yes")

    late = at(pair.second)(5)
    late.subscribe(("mine/#", 1))
    late.nothing()
    for number, hub in enumerate((pair.first, pair.second), 1):
        status = json.loads(hub.run("-o", "json", "status").stdout)
        assert (status["state"], status["node"]) == ("running", number)


def test_successor_sends_the_wills_and_ends_the_sessions_of_a_hub_that_was_killed(pair: Pair, at: At) -> None:
    """Ten seconds of silence; then the Will of a connection that died with its hub is published, and its session expires."""
    watcher = at(pair.second)(5, "mourner", keep=True, device="dev2")
    watcher.subscribe(("dead/#", 2))
    at(pair.first)(5, "mortal", clean=True, props=[(0x11, 1)], will=("dead/mortal", b"gone", 2, False))
    at(pair.first)(5, "lasting", keep=True, will=("dead/lasting", b"gone", 2, False))

    pair.first.kill()

    watcher.timeout = PATIENCE_S
    assert {watcher.take(1)[0].topic for _ in range(2)} == {"dead/mortal", "dead/lasting"}
    until(lambda: "mortal" not in {each["name"] for each in pair.second.rows("session", "list", "acme")}, "expired")
    assert not row(pair.second, "lasting")["is_connected"]
    watcher.timeout = 5.0
    pair.first.start()
    watcher.nothing()


@pytest.fixture
def hanging(pair: Pair, services: Services) -> Iterator[HangingGateway]:
    """The first hub's own way to HBase, when it starts the next time."""
    alone, gateway = pair.first.environment, HangingGateway(Endpoint(HOST, services.ports.thrift))
    pair.first.environment = {**alone, "IOTHUB_HBASE__THRIFT": f'["{gateway.address}"]'}
    yield gateway
    pair.first.close()
    pair.first.environment = alone
    gateway.close()


def test_start_that_a_store_holds_up_has_a_successor_for_the_sessions_of_the_hub_before_it(
    pair: Pair, at: At, hanging: HangingGateway
) -> None:
    """The hub was killed, begins again and cannot load them: the other one sends the Wills and ends sessions; then both go on."""
    watcher = at(pair.second)(5, "patient", keep=True, device="dev2")
    watcher.subscribe(("held/#", 2))
    at(pair.first)(5, "brief", clean=True, props=[(0x11, 1)], will=("held/brief", b"gone", 2, False))
    lasting = at(pair.first)(5, "held", keep=True, will=("held/lasting", b"gone", 2, False))
    lasting.subscribe(("for-held", 1))
    pair.first.kill()
    hanging.hang_at = re.compile(rb"scannerOpenWithScan.{0,64}:state\W", re.DOTALL)
    pair.first.launch()
    until(lambda: hanging.is_hung, "the loading has begun")
    assert "sessions are being loaded" in readiness(pair.first)[1]

    watcher.timeout = 2 * PATIENCE_S
    assert {watcher.take(1)[0].topic for _ in range(2)} == {"held/brief", "held/lasting"}
    assert pair.first.is_running()
    assert not readiness(pair.first)[0]
    until(lambda: "brief" not in {each["name"] for each in pair.second.rows("session", "list", "acme")}, "expired")
    at(pair.second)(5, device="dev2").publish("for-held", b"0", qos=1)

    hanging.let_go()

    until(lambda: readiness(pair.first)[0], "the first hub is ready")
    watcher.timeout = 3.0
    watcher.nothing()
    assert "brief" not in {each["name"] for each in pair.first.rows("session", "list", "acme")}
    at(pair.second)(5, device="dev2").publish("for-held", b"1", qos=1)
    back = at(pair.first)(5, "held", keep=True)
    assert back.connack.session_present
    assert back.payloads(2) == [b"0", b"1"]
    assert "Traceback" not in pair.first.log + pair.second.log


def test_hub_that_was_taken_for_dead_begins_again_without_its_clients(pair: Pair, at: At) -> None:
    """It stood still for longer than the others wait. Its client is told, and finds at the other hub what was published, in order, once."""
    until(lambda: states(pair.second).get(1) == "up", "the link is up")
    client, publisher = at(pair.first)(5, "sleeper", keep=True), at(pair.second)(5, device="dev2")
    client.subscribe(("sleep", 2))
    sent = [b"%d" % number for number in range(20)]
    before = pair.second.log.count("took over the sessions of hubs that are gone")
    assert pair.first.process is not None
    pair.first.process.send_signal(signal.SIGSTOP)
    try:
        for payload in sent[:10]:
            publisher.publish("sleep", payload, qos=2)
        until(
            lambda: pair.second.log.count("took over the sessions of hubs that are gone") > before,
            "there is a successor",
            PATIENCE_S,
        )
    finally:
        pair.first.process.send_signal(signal.SIGCONT)
    for payload in sent[10:]:
        publisher.publish("sleep", payload, qos=2)

    assert [(packet.kind, packet.code) for packet in client.expect_closed()] == [(DISCONNECT, 0x8B)]
    again = at(pair.second)(5, "sleeper", keep=True)
    assert again.payloads(20) == sent
    again.nothing()
    until(lambda: readiness(pair.first)[0], "the hub has begun again")
    until(lambda: are_linked(pair), "both links are up")
    assert pair.first.process.poll() is None


def test_second_hub_with_the_same_node_number_is_refused(pair: Pair) -> None:
    """Exit code 4, and who has it."""
    environment = {**pair.second.whole_environment, "IOTHUB_NODE__NUMBER": "1"}
    assert pair.second.stop() == 0

    done = subprocess.run(
        pair.second.command(), capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment
    )

    assert done.returncode == 4, done.stderr
    assert "node.number 1 belongs to a hub that runs on the same stores (one)" in done.stderr


def test_hubs_that_are_killed_in_turn_lose_double_and_swap_nothing(pair: Pair) -> None:
    """QoS 1 and 2, clients that wander between the hubs, one of which is often dead."""
    for hub in (pair.first, pair.second):
        hub.close()

    outcome = asyncio.run(run_pair(pair, KILLS, KILLS_S, rate_per_s=15, drain_s=60, seed=39))
    sys.stdout.write(outcome.report() + "\n")

    assert not outcome.wrong, outcome.report()
    assert outcome.ledger.acknowledged > 200
    assert "Traceback" not in pair.first.log + pair.second.log
