"""The configuration: where values come from, and what each mistake is answered with."""

from __future__ import annotations

import tomllib
from ipaddress import ip_network
from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.base.units import Rate
from iothub.config.loader import Loaded, load, sections
from iothub.config.reference_page import render_reference
from iothub.config.sections import Config

ROOT = Path(__file__).parents[3]
HEAD = "config_version = 1\n"


def write(folder: Path, text: str) -> Path:
    file = folder / "iothub.toml"
    file.write_text(text, encoding="utf-8")
    return file


def problem(**sources: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(**sources)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    assert caught.value.exit_code == 2
    return text


def test_defaults_listen_on_loopback_tcp_only() -> None:
    """Without settings only listeners.tcp on 127.0.0.1:1883 is on."""
    listeners = load().config.listeners

    assert (listeners.tcp.bind, listeners.tcp.port) == ("127.0.0.1", 1883)
    assert (listeners.tls.port, listeners.ws.port, listeners.wss.port) == (None, None, None)
    assert load().config.http.port is None
    assert load().config == Config()


def test_tcp_stays_on_when_another_listener_is_turned_on() -> None:
    """Turning WebSocket on does not silently turn TCP off."""
    listeners = load(flags=["listeners.ws.port=8083"]).config.listeners

    assert (listeners.tcp.port, listeners.ws.port, listeners.ws.path) == (1883, 8083, "/mqtt")


def test_tcp_is_turned_off_by_name(tmp_path: Path) -> None:
    file = write(tmp_path, HEAD + '[listeners.tcp]\nport = "off"\n')

    assert load(file=file).config.listeners.tcp.port is None
    assert load(flags=["listeners.tcp.port=off"]).config.listeners.tcp.port is None


def test_precedence_is_flag_environment_file_default(tmp_path: Path) -> None:
    """Each source wins over the next one, and the origin of each value is known."""
    file = write(tmp_path, HEAD + '[mqtt]\nmax_inflight = 1\nconnect_timeout = "1s"\nmax_keepalive = "1h"\n')
    environment = {"IOTHUB_MQTT__MAX_INFLIGHT": "2", "IOTHUB_MQTT__CONNECT_TIMEOUT": "2s"}
    flags = ["mqtt.max_inflight=9", "mqtt.max_inflight=3"]

    loaded = load(file=file, environment=environment, flags=flags)

    mqtt = loaded.config.mqtt
    assert (mqtt.max_inflight, mqtt.connect_timeout_s, mqtt.max_keepalive_s) == (3, 2.0, 3600.0)
    assert loaded.origins == {
        "mqtt.max_inflight": "flag --set",
        "mqtt.connect_timeout": "env IOTHUB_MQTT__CONNECT_TIMEOUT",
        "mqtt.max_keepalive": f"file {file}:5",
    }


def test_nested_environment_names_reach_listeners() -> None:
    loaded = load(environment={"IOTHUB_LISTENERS__TCP__PORT": "1999", "IOTHUB_DATA_DIR": "/x", "PATH": "/bin"})

    assert loaded.config.listeners.tcp.port == 1999


def test_relative_file_names_belong_to_the_folder_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, HEAD + '[listeners.tls]\nport = 8883\ncert_file = "hub.pem"\nkey_file = "/etc/hub.key"\n')

    tls = load(file=file).config.listeners.tls

    assert (tls.cert_file, tls.key_file) == (tmp_path / "hub.pem", Path("/etc/hub.key"))


def test_lists_are_read_from_text_in_both_forms() -> None:
    plain = load(flags=["listeners.tcp.deny=10.0.0.0/8, ::1"]).config.listeners.tcp.deny
    toml = load(flags=['listeners.tcp.deny=["10.0.0.0/8", "::1"]']).config.listeners.tcp.deny

    assert plain == toml == (ip_network("10.0.0.0/8"), ip_network("::1"))


@pytest.mark.parametrize(
    ("flag", "attribute", "value"),
    [
        ("log.rate_limit=off", "log.rate_limit", None),
        ("log.rate_limit=5/s", "log.rate_limit", Rate(5, 1.0)),
        ("listeners.tcp.accept_rate=500/1s", "listeners.tcp.accept_rate", Rate(500, 1.0)),
        ("mqtt.versions=5", "mqtt.versions", ("5",)),
        ("overload.memory_limit=2GiB", "overload.memory_limit", 2 << 30),
        ("overload.memory_limit=134217728", "overload.memory_limit", 1 << 27),
        ("alarms.memory_high=85%", "alarms.memory_high", 85),
        ("listeners.tcp.port=0", "listeners.tcp.port", 0),
        ("auth.failures=off", "auth.failures", None),
        ("auth.cache=1.5s", "auth.cache_s", 1.5),
        ("listeners.tcp.bind=::", "listeners.tcp.bind", "::"),
        ("tenancy.reserved=", "tenancy.reserved", ()),
    ],
)
def test_text_is_read_by_the_kind_of_the_key(flag: str, attribute: str, value: object) -> None:
    found: object = load(flags=[flag]).config
    for part in attribute.split("."):
        found = getattr(found, part)

    assert found == value


BAD_FILES = [
    ("[listeners.tcp]\nprot = 1883", "line 3: unknown setting 'listeners.tcp.prot'; did you mean 'listeners.tcp.port'"),
    (
        "[listeners.tcp]\nport = 70000",
        'line 3: listeners.tcp.port: expected a port number from 0 to 65535, or "off", got 70000',
    ),
    ("[listeners.tcp]\nport = -1", "expected a port number"),
    ('[listeners.tcp]\nport = "1883"', "expected a port number from 0 to 65535, or \"off\", got '1883'"),
    ("[listeners.tcp]\nport = true", "expected a port number"),
    ("[listeners.tcp]\nport = 1883.0", "expected a port number"),
    ('[listeners.tcp]\nbind = "localhost"', "listeners.tcp.bind: expected an IP address"),
    ('[listeners.tcp]\nbind = ""', "expected an IP address"),
    ('[listeners.tcp]\naddress = "::"', "unknown setting 'listeners.tcp.address'"),
    ('[listeners.tcp]\npath = "/mqtt"', "did you mean 'listeners.ws.path'"),
    ("[listeners.tpc]\nport = 1", "did you mean 'listeners.tcp.port'"),
    ("[listeners]\nport = 1", "unknown setting 'listeners.port'; did you mean 'listeners."),
    ("[listener.tcp]\nport = 1", "did you mean 'listeners.tcp.port'"),
    ("listeners = 5", "'listeners' is a section, expected a table"),
    ("[listeners]\ntcp = 1883", "'listeners.tcp' is a section"),
    ('[listeners.tcp]\nallow = "10.0.0.0/8"', "expected a list of texts"),
    ('[listeners.tcp]\nallow = ["10.0.0.1/8"]', "has host bits set"),
    ('[listeners.tcp]\nproxy_trusted = ["proxy"]', "expected an address or network"),
    ('[listeners.tcp]\naccept_rate = "fast"', 'expected a rate such as "100/10s", or "off"'),
    ('[listeners.tcp]\naccept_rate = "0/1s"', "expected a rate"),
    ('[listeners.tcp]\naccept_rate = "1/0s"', "longer than nothing"),
    ('[listeners.ws]\nport = 8083\npath = "mqtt"', "expected an absolute URL path"),
    ('[listeners.ws]\nport = 8083\npath = "/a b"', "expected an absolute URL path"),
    ("[listeners.tls]\nport = 8883", "line 3: listeners.tls needs cert_file; `iothub cert self-signed DIR`"),
    ('[listeners.tls]\nport = 8883\ncert_file = "a"', "listeners.tls needs key_file"),
    ("[listeners.wss]\nport = 8084", "listeners.wss needs cert_file"),
    *(
        (
            f'[listeners.tls]\nport = 8883\ncert_file = "a"\nkey_file = "b"\nclient_certificates = "{word}"',
            f'line 6: listeners.tls.client_certificates = "{word}" needs listeners.tls.client_ca_file',
        )
        for word in ("optional", "required")
    ),
    ('[listeners.tls]\nclient_certificates = "some"', "expected one of auto, none, optional, required"),
    ('[listeners.tls]\nmin_tls = "1.1"', "expected one of 1.2, 1.3"),
    ("[listeners.tls]\nmin_tls = 1.2", "expected one of 1.2, 1.3"),
    ("[listeners.tls]\ncert_file = 5", "expected the path of a file"),
    ("[listeners.ws]\nport = 1883", "listeners.ws.port: 127.0.0.1 port 1883 is already used by listeners.tcp"),
    ("[http]\nport = 1883", "http.port: 127.0.0.1 port 1883 is already used by listeners.tcp"),
    ("[mqtt]\nconnect_timeout = 10", 'expected a duration with its unit, such as "10s", got 10'),
    ('[mqtt]\nconnect_timeout = "10"', "expected a duration such as"),
    ('[mqtt]\nconnect_timeout = "10 parsecs"', "expected a duration such as"),
    ('[mqtt]\nconnect_timeout = "1h"', "expected a duration in 500ms..5m"),
    ("[mqtt]\nversions = []", "expected a list with one or more of 3.1, 3.1.1, 5"),
    ('[mqtt]\nversions = ["5.0"]', "expected a list with one or more of 3.1, 3.1.1, 5"),
    ("[mqtt]\nmax_inflight = 0", "expected a whole number from 1 to 65535"),
    ("[mqtt]\nmax_packet_size = 5", "packet sizes are limits of a plan"),
    ("[mqtt]\nallow_anonymous = true", "there are no anonymous devices"),
    ("[plans.standard]\nconnections = 5", "plans are kept with the accounts"),
    ('[node]\ndata_dir = "/x"', "given with --data-dir"),
    ('[node]\nname = "a b"', "expected a name of 1 to 64"),
    ("[node]\nnumber = 65536", "expected a whole number from 0 to 65535"),
    ('[log]\nlevel = "loud"', "expected one of debug, info, warning, error, got 'loud'"),
    ('[tenancy]\nreserved = "x"', "expected a list of texts"),
    ('[overload]\nmemory_limit = "1GB"', "expected a size such as"),
    ('[overload]\nmemory_limit = "1MiB"', "expected a size in 64MiB..16TiB"),
    ('[alarms]\nmemory_high = "170%"', "expected a percentage"),
    ("[alarms]\nmemory_high = 70", "expected a percentage"),
    ("[jobs]\nat = 230", "expected a time of day"),
    ('[jobs]\nat = "2:30"', 'expected a time of day such as "02:30", or "off"'),
    (
        '[events]\nleft_out = ["3:4711"]',
        "setting 'events.left_out' was removed: damaged events are passed over and counted",
    ),
    ('[jobs]\nnightly = ["compact"]', "expected a list with one or more of compact_events, usage"),
    ('[spark]\ndriver_memory = "1g"', "expected a size such as"),
    ("[memcached]\ntimeout = 5", "unknown setting 'memcached.timeout'"),
    ("[memcached]", "unknown setting 'memcached'"),
    ("mqtt.max_inflght = 5", "line 2: unknown setting 'mqtt.max_inflght'; did you mean 'mqtt.max_inflight'"),
    ("[[listeners.tcp]]\nport = 1", "'listeners.tcp' is a section"),
    ("[mqtt]\nmax_inflight = { a = 1 }", "expected a whole number"),
    ("[mqtt", "not valid TOML"),
    ("[mqtt]\nmax_inflight = 1\nmax_inflight = 2", "not valid TOML"),
]


@pytest.mark.parametrize(("body", "expected"), BAD_FILES, ids=[body.replace("\n", " ") for body, _ in BAD_FILES])
def test_mistake_in_a_file_is_named(tmp_path: Path, body: str, expected: str) -> None:
    """Every mistake stops the start with one line that names the file and what to write instead."""
    file = write(tmp_path, f"{HEAD}{body}\n")

    text = problem(file=file)

    assert text.startswith(str(file))
    assert expected in text


def test_every_mistake_of_all_sources_is_named(tmp_path: Path) -> None:
    """The first is the error, the others are its details; rules about a setting that is wrong itself say nothing."""
    file = write(
        tmp_path,
        f'{HEAD}[mqtt]\nmax_inflght = 3\nmax_inflight = 0\n[log]\nlevel = "loud"\n[events]\ndriver = "kafka"\n'
        '[kafka]\nbrokers = "kafka-1"\n[state]\ndriver = "hbase"\n',
    )
    environment = {"IOTHUB_HTTP__PORT": "x", "IOTHUB_HTTP__PROT": "1"}

    with pytest.raises(ConfigError) as caught:
        load(
            file=file,
            environment=environment,
            flags=["listeners.tls.port=8883", "listeners.tls.cert_file=cert.pem", "x"],
        )

    first, *others = (str(caught.value), *caught.value.details)
    assert first.startswith(f"{file}, line 3: unknown setting 'mqtt.max_inflght'; did you mean 'mqtt.max_inflight'")
    for expected, text in zip(
        [
            "environment variable IOTHUB_HTTP__PROT: unknown setting 'http.prot'",
            "--set x: expected KEY=VALUE",
            f"{file}, line 4: mqtt.max_inflight: expected a whole number",
            f"{file}, line 6: log.level: expected one of debug, info",
            f"{file}, line 10: kafka.brokers: expected",
            "environment variable IOTHUB_HTTP__PORT: http.port: expected a port number",
            "--set listeners.tls.port=8883: listeners.tls needs key_file",
            f'{file}, line 12: state.driver = "hbase" needs hbase.thrift',
        ],
        others,
        strict=True,
    ):
        assert text.startswith(expected)


def test_file_that_cannot_be_read_leaves_other_mistakes_named(tmp_path: Path) -> None:
    """And no rule speaks of what it may have said."""
    file = write(tmp_path, "[mqtt")

    with pytest.raises(ConfigError, match="not valid TOML") as caught:
        load(file=file, flags=["http.port=x", "events.driver=kafka"])

    assert [text.partition(": expected")[0] for text in caught.value.details] == ["--set http.port=x: http.port"]


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("listeners.tcp.port", "--set listeners.tcp.port: expected KEY=VALUE"),
        ("=5", "expected KEY=VALUE"),
        ("listeners.tcp.port=mqtt", "--set listeners.tcp.port=mqtt: listeners.tcp.port: expected a port number"),
        ("listeners.tcp.port=99999999999999999999999", "expected a port number"),
        ("listeners.tcp.prt=1", "did you mean 'listeners.tcp.port'"),
        ("Listeners.tcp.port=1", "did you mean 'listeners.tcp.port'"),
        ("listeners.tcp=1", "'listeners.tcp' is a section"),
        ("log.color=yes", "unknown setting 'log.color'"),
        ("listeners.tcp.deny=[10.0.0.0/8", 'expected a list such as a,b or ["a", "b"]'),
        ("config_version=1", "unknown setting 'config_version'"),
    ],
)
def test_mistake_in_a_flag_is_named(flag: str, expected: str) -> None:
    assert expected in problem(flags=[flag])


def test_mistake_in_the_environment_names_the_variable() -> None:
    text = problem(environment={"IOTHUB_LISTENERS__TCP__PRT": "1"})

    assert text.startswith("environment variable IOTHUB_LISTENERS__TCP__PRT: unknown setting 'listeners.tcp.prt'")
    assert "did you mean 'listeners.tcp.port'" in text


def test_wrong_value_in_the_environment_names_the_variable() -> None:
    text = problem(environment={"IOTHUB_HTTP__PORT": "http"})

    assert text.startswith("environment variable IOTHUB_HTTP__PORT: http.port: expected a port number")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("config_version = 2\n", "expected `config_version = 1` before the first section; found 2"),
        ("config_version = true\n", "found True"),
    ],
)
def test_file_of_another_version_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in problem(file=write(tmp_path, text))


def test_file_without_a_version_is_of_the_first(tmp_path: Path) -> None:
    """Whoever writes two lines by hand does not have to know of it, and a wrong key is still named."""
    assert load(file=write(tmp_path, "[mqtt]\nmax_inflight = 5\n")).config.mqtt.max_inflight == 5
    assert "mqtt.max_inflght" in problem(file=write(tmp_path, "[mqtt]\nmax_inflght = 5\n"))


def test_file_that_is_missing_is_named(tmp_path: Path) -> None:
    assert problem(file=tmp_path / "no.toml") == f"{tmp_path / 'no.toml'}: no such configuration file"


def test_file_that_is_a_directory_is_named(tmp_path: Path) -> None:
    assert "is a directory" in problem(file=tmp_path)


def test_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "iothub.toml"
    file.write_bytes(b"\xff\xfe\x00")

    assert "not UTF-8 text" in problem(file=file)


def test_file_that_is_far_too_big_is_not_read(tmp_path: Path) -> None:
    assert "larger than 1 MiB" in problem(file=write(tmp_path, "#" * (1 << 20) + "\n"))


def _as_toml(loaded: Loaded) -> str:
    lines = [HEAD]
    lines += [f"{name} = {value}\n" for name, value, _ in loaded.values()]
    return "".join(lines)


def test_shown_values_are_a_configuration_file(tmp_path: Path) -> None:
    """What `config show` prints can be given back and means the same."""
    first = load(flags=["listeners.ws.port=8083", "log.rate_limit=off", "listeners.tcp.deny=10.0.0.0/8"])

    text = _as_toml(first)

    tomllib.loads(text)
    assert load(file=write(tmp_path, text)).config == first.config


def test_every_key_has_a_sentence_and_a_readable_default() -> None:
    """A default that its own kind refuses would be a trap in the reference page."""
    for section in sections():
        assert section.sentence.endswith(".")
        for setting in section.settings:
            kind = setting.key.kind
            raw = tomllib.loads(f"value = {kind.write(setting.default)}")["value"]
            assert kind.read(raw) == setting.default, setting.name
            assert setting.key.sentence.endswith("."), setting.name


def test_reference_page_is_up_to_date() -> None:
    """Regenerate with `.venv/bin/python docs/reference/generate.py`."""
    assert (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8") == render_reference()
