"""`up`, `down` and what lies between, with stand-ins for the servers: real processes, real files, no JVM."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ops.services import places as places_module
from ops.services import services as services_module
from ops.services.__main__ import main
from ops.services.errors import ServicesError
from ops.services.places import HOST, ROOT, Places, Ports
from ops.services.process import ServerProcess
from ops.services.server import Server
from ops.services.servers import ALWAYS, NAMES, habits_of, ports_of
from ops.services.services import Services
from ops.services.tools import Tools
from tests.support.stand_in import make_stand_in
from tests.support.waiting import until


@dataclass
class _World:
    """What the servers are described as; tests change it between two `up`."""

    java: str
    words: tuple[str, ...] = ()
    text: str = "a=1\n"
    ports: tuple[int, ...] = ()
    said: list[str] = field(default_factory=list)

    def describe(self, name: str, *_: object) -> Server:
        process = ServerProcess(name, Path(self.java).parent / "services" / name, habits_of(name))

        def ask() -> None:
            if "brief" in self.words or process.state() != "running" or "ready" not in process.out.read_text():
                raise ConnectionRefusedError("nobody there")

        files = {"conf/settings": self.text}
        return Server(name, (self.java,), self.words, files, self.ports, ask, tool=(self.java,))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _World:
    made = _World(make_stand_in(tmp_path))
    monkeypatch.setattr(places_module, "OWN_USERS", {})  # stand-ins run as we do, in our folder
    monkeypatch.setattr(services_module, "describe", made.describe)
    monkeypatch.setattr(services_module, "ports_of", lambda name, ports: made.ports)
    monkeypatch.setattr(services_module, "find_tools", lambda say: Tools(tmp_path, tmp_path))
    return made


@pytest.fixture
def servers(world: _World, tmp_path: Path) -> Iterator[Services]:
    made = Services(Places(tmp_path / "services"), Ports(), say=world.said.append)
    yield made
    for name in NAMES:
        made.kill(name)


def _pids(servers: Services) -> dict[str, int | None]:
    return {report.name: report.pid for report in servers.reports()}


def test_up_starts_all_but_the_gateway_and_writes_the_hubs_settings(servers: Services) -> None:
    """The second gateway is for those who ask for it."""
    servers.up()

    assert {report.name: report.state for report in servers.reports()} == {
        **dict.fromkeys(ALWAYS, "running"),
        "gateway": "down",
    }
    assert servers.places.hub_settings.exists()
    assert (servers.places.of("kafka") / "conf/settings").read_text() == "a=1\n"


def test_server_that_is_put_inside_another_program_is_started_anew(servers: Services) -> None:
    """And again when it comes out; the other one is left alone."""

    def is_inside(pid: int | None) -> bool:
        return b"IOTHUB_INSIDE=yes" in Path(f"/proc/{pid}/environ").read_bytes()

    servers.up("hbase", "kafka")
    before = _pids(servers)
    inside = Services(servers.places, servers.ports, within={"kafka": ("env", "IOTHUB_INSIDE=yes")})

    inside.up("hbase", "kafka")

    after = _pids(servers)
    assert after["hbase"] == before["hbase"]
    assert after["kafka"] not in (None, before["kafka"])
    until(lambda: is_inside(after["kafka"]), "the program has begun what is inside it")

    servers.up("hbase", "kafka")

    assert not is_inside(_pids(servers)["kafka"])


def test_up_again_starts_nothing(servers: Services, world: _World) -> None:
    """Idempotent: the same processes, not a word."""
    servers.up()
    before = _pids(servers)
    world.said.clear()

    servers.up()

    assert _pids(servers) == before
    assert world.said == []


def test_up_starts_again_what_has_died(servers: Services) -> None:
    """The other one is left alone."""
    servers.up()
    before = _pids(servers)
    servers.kill("kafka")

    servers.up()

    after = _pids(servers)
    assert after["hbase"] == before["hbase"]
    assert after["kafka"] not in (None, before["kafka"])


def test_up_lets_go_on_what_is_paused(servers: Services) -> None:
    """The same process."""
    servers.up()
    before = _pids(servers)
    servers.pause("hbase")

    servers.up()

    assert _pids(servers) == before
    assert all(report.state != "paused" for report in servers.reports())


@pytest.mark.parametrize(
    "change", [lambda world: setattr(world, "words", ("x",)), lambda world: setattr(world, "text", "a=2\n")]
)
def test_up_starts_anew_what_runs_with_other_settings(
    servers: Services, world: _World, change: Callable[[_World], None]
) -> None:
    """Nobody tests yesterday's jar or settings without noticing."""
    servers.up()
    before = _pids(servers)
    change(world)

    servers.up()

    assert _pids(servers)["kafka"] not in (None, before["kafka"])
    assert "kafka runs with old settings or an old jar; restarting it" in world.said


def test_server_that_ends_while_starting_is_told_with_its_log(servers: Services, world: _World) -> None:
    """At once, not after the time limit."""
    world.words = ("brief",)

    with pytest.raises(ServicesError, match=r"hbase stopped during its start(?s:.*)this is the last line"):
        servers.up()


def test_server_that_does_not_answer_is_told_with_its_log(
    servers: Services, world: _World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounded, with the reason why it is not thought to answer, and with progress on the way."""
    monkeypatch.setattr(services_module, "START_LIMIT_S", 2.0)
    monkeypatch.setattr(services_module, "_PROGRESS_S", 0.05)
    monkeypatch.setattr(services_module, "describe", lambda *_: Server("hbase", (world.java,), (), {}, (), _never))

    with pytest.raises(ServicesError, match=r"did not answer within 2 s \(nobody there\)(?s:.*)ready"):
        servers.up("hbase")

    assert any(line.startswith("waiting for hbase, 0 s so far") for line in world.said)


def test_server_that_ran_and_hangs_is_replaced_where_somebody_is_told(
    world: _World, servers: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another process on its data, with the reason; one that has just been started is waited for, and fails."""
    hung: list[int | None] = []

    def ask() -> None:
        if _pids(servers)["hbase"] in hung:
            _never()

    monkeypatch.setattr(services_module, "HUNG_S", 0.3)
    monkeypatch.setattr(services_module, "describe", lambda *_: Server("hbase", (world.java,), (), {}, (), ask))
    replaced: list[str] = []
    healing = Services(servers.places, servers.ports, on_hung=replaced.append)
    healing.up("hbase")
    hung.append(_pids(servers)["hbase"])

    with monkeypatch.context() as hasty:
        hasty.setattr(services_module, "START_LIMIT_S", 0.3)
        with pytest.raises(ServicesError, match="did not answer within 0 s"):
            servers.up("hbase")
    healing.up("hbase")

    assert _pids(servers)["hbase"] not in (None, *hung)
    assert [reason.splitlines()[0] for reason in replaced] == [
        "hbase ran before and was killed: hbase did not answer within 0 s (nobody there); the end of its log:"
    ]
    servers.kill("hbase")
    monkeypatch.setattr(services_module, "START_LIMIT_S", 0.3)
    monkeypatch.setattr(services_module, "describe", lambda *_: Server("hbase", (world.java,), (), {}, (), _never))
    with pytest.raises(ServicesError, match="did not answer within 0 s"):
        healing.up("hbase")
    assert len(replaced) == 1


def _never() -> None:
    raise ConnectionRefusedError("nobody there")


def test_port_of_another_program_is_named(servers: Services, world: _World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started."""
    monkeypatch.setattr(services_module, "_PORT_LIMIT_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        world.ports = (port,)

        with pytest.raises(ServicesError, match=rf"hbase needs port {port} of 127\.0\.0\.1(?s:.*)SHIFT=100"):
            servers.up()

    assert set(_pids(servers).values()) == {None}


def test_port_of_another_program_is_named_before_anything_is_fetched(
    world: _World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after minutes of Maven."""
    monkeypatch.setattr(services_module, "_PORT_LIMIT_S", 0.0)
    monkeypatch.setattr(services_module, "find_tools", lambda say: pytest.fail("fetched"))
    monkeypatch.setattr(services_module, "ports_of", ports_of)
    ports = Ports(8_760)
    with socket.create_server(("127.0.0.1", ports.kafka)):
        servers = Services(Places(tmp_path / "services"), ports, say=world.said.append)

        with pytest.raises(ServicesError, match=rf"kafka needs port {ports.kafka} "):
            servers.up("kafka")


def test_down_stops_all_and_keeps_the_data(servers: Services) -> None:
    """Also the second gateway; twice is fine."""
    servers.up(*NAMES)
    (servers.places.of("kafka") / "data").touch()

    servers.down()
    servers.down()

    assert set(_pids(servers).values()) == {None}
    assert (servers.places.of("kafka") / "data").exists()


def test_wipe_leaves_no_data(servers: Services) -> None:
    """The libraries stay: they took a minute."""
    servers.up()
    servers.places.libraries.mkdir()

    servers.wipe()

    assert not servers.places.of("kafka").exists()
    assert servers.places.libraries.exists()


def test_what_does_not_run_cannot_be_paused(servers: Services) -> None:
    """A test of a pause that paused nothing would prove nothing."""
    with pytest.raises(ServicesError, match="kafka cannot be paused: it does not run"):
        servers.pause("kafka")
    with pytest.raises(ServicesError, match="kafka cannot be resumed: it does not run"):
        servers.resume("kafka")


def test_tool_of_a_server_runs_beside_it(servers: Services, capfd: pytest.CaptureFixture[str]) -> None:
    """On its jars and settings, in its folder, with our terminal; the server does not notice."""
    with pytest.raises(ServicesError, match="kafka has never been started here"):
        servers.java("kafka", "brief")
    servers.up()
    before = _pids(servers)

    assert servers.java("kafka", "brief") == 1

    assert capfd.readouterr().out == "ready\nthis is the last line\n"
    assert _pids(servers) == before


def test_unknown_server_is_refused_by_name(servers: Services) -> None:
    """With the names that exist."""
    with pytest.raises(
        ServicesError, match="'mysql'; expected one of hbase, kafka, redis, mariadb, postgresql, gateway"
    ):
        servers.kill("mysql")


def test_only_one_starts_or_stops_at_a_time(servers: Services, world: _World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two terminals, or two test runs: the second waits, and says so; not for ever."""
    monkeypatch.setattr(services_module, "_LOCK_LIMIT_S", 0.1)
    servers.places.folder.mkdir()
    take = f"import fcntl, sys; f = open({str(servers.places.lock)!r}, 'a'); fcntl.flock(f, fcntl.LOCK_EX)"
    lock = f"{take}; print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        with pytest.raises(ServicesError, match="held by another program"):
            servers.up()

        holder.communicate("")
    assert world.said == ["another process is starting or stopping these servers; waiting ..."]


def test_command_line_says_what_runs(servers: Services, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 when all run, 7 when not; a mistake is one line without a traceback."""
    words = ["--dir", str(servers.places.folder)]
    assert main([*words, "status"]) == 7

    servers.up()
    assert main([*words, "status"]) == 0
    assert main([*words, "kill", "kafka"]) == 0
    assert main([*words, "pause", "kafka"]) == 7

    output = capsys.readouterr()
    assert "hbase      running  process" in output.out
    assert output.err == "services: kafka cannot be paused: it does not run\n"


def test_second_gateway_is_told_of_while_it_runs(servers: Services, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever has started it needs its address; by `up` and by `status`."""
    words = ["--dir", str(servers.places.folder)]
    output = []
    for more in (("status",), ("up", "gateway"), ("status",), ("down", "gateway"), ("status",)):
        main([*words, *more])
        output.append(f"HBase's second gateway      {HOST}:{servers.ports.second_thrift}\n" in capsys.readouterr().out)

    assert output == [False, True, True, False, False]


def test_command_line_runs_without_the_hubs_libraries() -> None:
    """`make services` comes before `make install`: the standard library is enough."""
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); import ops.services.__main__",
        ],
        check=False,
    )

    assert done.returncode == 0
