"""Stories with mosquitto_pub and mosquitto_sub, in 3.1.1 and 5.0.

A session is created with `mosquitto_sub -E` (subscribe, then leave) first, so that no story depends on who is quicker.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.support.clients.clients import unique
from tests.support.hubs.hub import Hub

VERSIONS = pytest.mark.parametrize("version", ["311", "5"])
TIMEOUT_S = 300  # only what hangs comes to it
PATIENCE = str(TIMEOUT_S)


class Mosquitto:
    """The two programs, aimed at the hub."""

    def __init__(self, hub: Hub, find: Callable[[str], str], version: str) -> None:
        self.hub = hub
        self.programs = {name: find(f"mosquitto_{name}") for name in ("pub", "sub")}
        self.version = version

    def line(self, name: str, device: str, *words: str) -> list[str]:
        """One command line. TLS when the words say --cafile."""
        port = self.hub.ports["tls" if "--cafile" in words else "tcp"]
        who = ["-u", f"home/{device}", "-P", "secret", "-V", self.version]
        return [self.programs[name], "-h", "localhost", "-p", str(port), *who, *words]

    def run(self, name: str, device: str, *words: str, given: str | None = None) -> str:
        done = subprocess.run(
            self.line(name, device, *words), input=given, text=True, capture_output=True, check=False, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done
        return done.stdout

    def start(self, name: str, device: str, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(self.line(name, device, *words), text=True, stdout=subprocess.PIPE)

    def keep(self, client_id: str) -> list[str]:
        """Words for a session that outlives its connection."""
        return ["-i", client_id, "-c", *(["-x", "3600"] if self.version == "5" else [])]


@pytest.fixture(params=["311", "5"])
def mosquitto(hub: Hub, program: Callable[[str], str], request: pytest.FixtureRequest) -> Mosquitto:
    return Mosquitto(hub, program, request.param)


@pytest.mark.parametrize("qos", ["1", "2"])
def test_offline_console_gets_every_reading_in_order(mosquitto: Mosquitto, qos: str) -> None:
    """The console goes away, the sensor publishes a hundred lines, the console returns: all there, in order, once."""
    topic, console = unique("room"), mosquitto.keep(unique("console"))
    mosquitto.run("sub", "console", *console, "-q", qos, "-t", f"{topic}/#", "-E")
    readings = [f"{number}" for number in range(100)]

    mosquitto.run("pub", "sensor", "-q", qos, "-t", f"{topic}/temperature", "-l", given="\n".join(readings) + "\n")

    got = mosquitto.run("sub", "console", *console, "-q", qos, "-t", f"{topic}/#", "-C", "100", "-W", PATIENCE)
    assert got.split() == readings
    mosquitto.run("pub", "sensor", "-q", qos, "-t", f"{topic}/end", "-m", "end")
    assert (
        mosquitto.run("sub", "console", *console, "-q", qos, "-t", f"{topic}/#", "-C", "1", "-W", PATIENCE) == "end\n"
    )


def test_interrupted_console_goes_on_where_it_was(hub: Hub, program: Callable[[str], str]) -> None:
    """It takes one message at a time and leaves after three, again and again; nothing is lost and the order holds.

    (mosquitto_sub forgets at its end what it has acknowledged and not shown, hence Receive Maximum 1.)
    """
    mosquitto, topic = Mosquitto(hub, program, "5"), unique("room")
    words = [*mosquitto.keep(unique("console")), "-D", "connect", "receive-maximum", "1", "-q", "1", "-t", topic]
    mosquitto.run("sub", "console", *words, "-E")
    mosquitto.run("pub", "sensor", "-q", "2", "-t", topic, "-l", given="".join(f"{n}\n" for n in range(12)))
    seen: list[int] = []

    while not seen or seen[-1] != 11:
        seen += [int(word) for word in mosquitto.run("sub", "console", *words, "-C", "3", "-W", PATIENCE).split()]

    assert list(dict.fromkeys(seen)) == list(range(12))
    assert seen == sorted(seen)


def test_retained_state_is_there_for_newcomers_until_it_is_removed(mosquitto: Mosquitto) -> None:
    """`mosquitto_pub -r`, a newcomer, a new value, a newcomer, `-n -r`."""
    topic = unique("lamp")
    newcomer = ["-t", topic, "-q", "1", "-C", "1", "-W", PATIENCE, "-F", "%r %q %p"]
    for value in ("on", "off"):
        mosquitto.run("pub", "light", "-q", "1", "-r", "-t", topic, "-m", value)
        assert mosquitto.run("sub", "console", *newcomer) == f"1 1 {value}\n"

    mosquitto.run("pub", "light", "-q", "1", "-r", "-t", topic, "-n")
    mosquitto.run("pub", "light", "-q", "1", "-r", "-t", f"{topic}/fence", "-m", "fence")

    assert mosquitto.run("sub", "console", "-t", f"{topic}/#", "-q", "1", "-C", "1", "-W", PATIENCE) == "fence\n"


def test_a_killed_light_is_reported_by_its_will(mosquitto: Mosquitto) -> None:
    """Kill -9 of a client with a retained Will: those who wait hear it, newcomers find it."""
    topic, console = unique("light"), mosquitto.keep(unique("console"))
    mosquitto.run("sub", "console", *console, "-q", "1", "-t", f"{topic}/state", "-E")
    mosquitto.run("pub", "console", "-q", "1", "-r", "-t", f"{topic}/command", "-m", "shine")
    will = ["--will-topic", f"{topic}/state", "--will-payload", "gone", "--will-qos", "1", "--will-retain"]
    light = mosquitto.start("sub", "light", "-t", f"{topic}/command", "-q", "1", *will)
    assert light.stdout is not None
    assert light.stdout.readline() == "shine\n"

    light.kill()
    light.wait()
    light.stdout.close()

    heard = mosquitto.run("sub", "console", *console, "-q", "1", "-t", f"{topic}/state", "-C", "1", "-W", PATIENCE)
    assert heard == "gone\n"
    newcomer = mosquitto.run("sub", "sensor", "-t", f"{topic}/state", "-C", "1", "-W", PATIENCE, "-F", "%r %p")
    assert newcomer == "1 gone\n"


def test_readings_travel_over_tls(mosquitto: Mosquitto) -> None:
    """The certificate of `iothub cert self-signed` is its own authority."""
    topic, console = unique("room"), mosquitto.keep(unique("console"))
    trust = ["--cafile", str(mosquitto.hub.data_dir / "cert.pem")]
    mosquitto.run("sub", "console", *console, *trust, "-q", "1", "-t", topic, "-E")
    mosquitto.run("pub", "sensor", *trust, "-q", "1", "-t", topic, "-m", "21.5")

    got = mosquitto.run("sub", "console", *console, *trust, "-q", "1", "-t", topic, "-C", "1", "-W", PATIENCE)

    assert got == "21.5\n"


def test_properties_arrive_as_they_were_sent(hub: Hub, program: Callable[[str], str]) -> None:
    """User properties in order, content type, response topic and correlation data, through a queue."""
    mosquitto, topic = Mosquitto(hub, program, "5"), unique("room")
    console = mosquitto.keep(unique("console"))
    mosquitto.run("sub", "console", *console, "-q", "1", "-t", topic, "-E")
    sent = ["-D", "publish", "user-property", "b", "1", "-D", "publish", "user-property", "a", "2"]
    sent += ["-D", "publish", "content-type", "text/plain", "-D", "publish", "response-topic", "reply"]
    sent += ["-D", "publish", "correlation-data", "42"]
    mosquitto.run("pub", "sensor", "-q", "1", "-t", topic, "-m", "x", *sent)

    form = "%p|%C|%R|%D|%P"
    got = mosquitto.run("sub", "console", *console, "-q", "1", "-t", topic, "-C", "1", "-W", PATIENCE, "-F", form)

    assert got == "x|text/plain|reply|42|b:1 a:2\n"


def test_a_wrong_secret_is_refused_in_words(mosquitto: Mosquitto) -> None:
    """The program ends with the refusal of its protocol version."""
    line = mosquitto.line("pub", "sensor", "-t", "t", "-m", "x")
    line[line.index("secret")] = "wrong"

    done = subprocess.run(line, text=True, capture_output=True, check=False, timeout=TIMEOUT_S)

    assert done.returncode != 0
    assert "uthori" in done.stderr + done.stdout
