"""Read the configuration: flag, then environment, then file, then default; say for each value where it came from.

Knows no meaning of a key (`iothub.config.sections` declares them). Strict: an unknown key, a wrong type or two settings that
cannot work together give a ConfigError that names file, line, key and what to write instead; of several mistakes each is named.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from iothub.base.errors import ConfigError, ErrorList, UnavailableError
from iothub.config import admin_rules, cluster_rules, worker_rules
from iothub.config.sections import Config, Key, Listener, Listeners, TlsListener, kind_of
from iothub.config.toml_lines import line_numbers, nearest_line, table_name
from iothub.config.value_types import RemovedError, WrongTablesError

CONFIG_VERSION = 1
_FIRST_VERSION = 1  # of a file that does not say
ENVIRONMENT_PREFIX = "IOTHUB_"
ENVIRONMENT_SEPARATOR = "__"
_FILE_LIMIT_BYTES = 1 << 20
_LISTENER_NAME = re.compile(r"(?=.{1,32}$)[a-z](?:_?[a-z0-9])*")  # a part of a variable's name, so without `__`
_OF_NAMED_LISTENER = re.compile(r"listeners\.(tcp|tls|ws|wss)\.([^.]+)\.([^.]+)")

# Names that people look for among the settings and that live elsewhere.
_LIVES_ELSEWHERE = {
    "plans": "plans are kept with the accounts: see `iothub plan --help`",
    "tenants": "tenants are kept with the accounts: see `iothub tenant --help`",
    "node.data_dir": "the data directory is given with --data-dir or IOTHUB_DATA_DIR",
    "data_dir": "the data directory is given with --data-dir or IOTHUB_DATA_DIR",
    "mqtt.max_packet_size": "packet sizes are limits of a plan: see `packet_bytes` in `iothub plan show standard`",
    "mqtt.max_topic_levels": "topic levels are limits of a plan: see `topic_levels` in `iothub plan show standard`",
    "mqtt.allow_anonymous": "there are no anonymous devices: see `iothub device create --help`",
    "queues.max_messages": "queue lengths are limits of a plan: see `session_queued_messages` there",
}
# Settings of earlier versions, with what replaces them.
_REMOVED = {
    "events.left_out": "damaged events are passed over and counted (`iothub_damaged_records_total`): remove the setting",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One declared key: its dotted name, how it is read, its default."""

    name: str
    key: Key
    default: object


@dataclass(frozen=True, slots=True)
class Section:
    """One declared section, in the order of the reference page."""

    name: str
    sentence: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checked configuration, with the origin of each given value and the file that was read, if any."""

    config: Config
    origins: Mapping[str, str]
    file: Path | None

    def values(self) -> Iterator[tuple[str, str, str]]:
        """Yield (key, value as TOML, origin) in the order of the reference page; named listeners come last."""
        for setting in settings_of(self.config):
            value = setting.key.kind.write(value_of(self.config, setting.name))
            named = _of_named_listener(setting.name)
            inherited = self.origins.get(named.like, "default") if named else "default"
            yield setting.name, value, self.origins.get(setting.name, inherited)


@dataclass(frozen=True, slots=True)
class _Given:
    """A value as it was written. `where` is for messages, `origin` for `config show --origin`.

    `file`, `lines`: where it is from, if that is a file; it distinguishes the tables of a list. `is_text`: it is from a flag or the
    environment, else TOML.
    """

    raw: object
    where: str
    origin: str
    file: Path | None = None
    lines: Mapping[str, int] = dataclasses.field(default_factory=dict)
    is_text: bool = False

    def of_table(self, name: str, number: int, key: str) -> str:
        """Return where a key of one table stands, or else the table."""
        table = table_name(name, number)
        line = nearest_line(self.lines, f"{table}.{key}")
        return f"{self.file}, line {line}" if table in self.lines and line else self.where


@dataclass(frozen=True, slots=True)
class Examined:
    """What could be read of a configuration that may have mistakes.

    `loaded`: with the default in place of a wrong value. `errors`: the mistakes so far. `wrong`: the settings whose given values are not known:
    a rule about one of them says nothing.
    """

    loaded: Loaded
    errors: ErrorList
    wrong: frozenset[str]

    def is_known(self, *names: str) -> bool:
        """Are the given values of these settings, or of these sections, all known?"""
        return not any(wrong == name or wrong.startswith(f"{name}.") for wrong in self.wrong for name in names)


def load(
    *, file: Path | None = None, environment: Mapping[str, str] | None = None, flags: Sequence[str] = ()
) -> Loaded:
    """Read all sources and return the effective configuration. Arguments: as `examine`.

    Raises:
        ConfigError: For the first mistake, one line with file, line and key; its `details` name the others.
        UnavailableError: The file exists but cannot be read.
    """
    examined = examine(file=file, environment=environment, flags=flags)
    examined.errors.raise_any()
    return examined.loaded


def examine(
    *, file: Path | None = None, environment: Mapping[str, str] | None = None, flags: Sequence[str] = ()
) -> Examined:
    """Read all sources and gather every mistake.

    Args:
        file: A TOML file; it must exist. Relative file names in it are relative to its folder.
        environment: Usually `os.environ`; only `IOTHUB_` names that contain `__` are settings.
        flags: `key=value` texts of `--set`, the last one wins.
    """
    errors = ErrorList()
    given: dict[str, _Given] = {}
    wrong = frozenset(_SETTINGS)  # until the file is read: it may give any of them
    with errors.gathering():
        if file is not None:
            given.update(_from_file(file, errors))
        wrong = frozenset()
    given.update(_from_environment(environment or {}, errors))
    given.update(_from_flags(flags, errors))
    base = file.parent if file is not None else None
    values = {}
    for name, entry in given.items():
        with errors.gathering():
            values[name] = _read(name, entry, base)
    config = cast("Config", _build(Config, "", values))
    config = dataclasses.replace(config, listeners=_with_named(config.listeners, values))
    loaded = Loaded(config, {name: entry.origin for name, entry in given.items()}, file)
    examined = Examined(loaded, errors, wrong | (given.keys() - values.keys()))
    _check_together(examined, given)
    return examined


def sections() -> tuple[Section, ...]:
    """Return every section with its keys, as declared."""
    return _SECTIONS


def settings_of(config: Config) -> Iterator[Setting]:
    """Yield every setting, in the order of the reference page, then those of the named listeners."""
    yield from _SETTINGS.values()
    for name, _ in config.listeners.named:
        prefix = f"listeners.{kind_of(name)}."
        for setting in _SETTINGS.values():
            if setting.name.startswith(prefix):
                yield dataclasses.replace(setting, name=f"listeners.{name}.{setting.name.removeprefix(prefix)}")


class _OfNamedListener(NamedTuple):
    """A setting of a named listener, taken apart. `like`: the setting of its kind that it is like, and that it inherits from."""

    listener: str
    key: str
    like: str


def _of_named_listener(name: str) -> _OfNamedListener | None:
    found = _OF_NAMED_LISTENER.fullmatch(name)
    if found is None or f"listeners.{found[1]}.{found[2]}" in _SETTINGS:
        return None
    return _OfNamedListener(f"{found[1]}.{found[2]}", found[3], f"listeners.{found[1]}.{found[3]}")


def _key_of(name: str) -> Key:
    """Return what is known about a setting that is known."""
    named = _of_named_listener(name)
    return _SETTINGS[named.like if named else name].key


def _from_file(file: Path, errors: ErrorList) -> dict[str, _Given]:
    text = _read_text(file)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: not valid TOML: {error}") from None
    version = document.pop("config_version", _FIRST_VERSION)
    if version != CONFIG_VERSION or isinstance(version, bool):
        raise ConfigError(
            f"{file}: expected `config_version = {CONFIG_VERSION}` before the first section; found {version!r}"
        )
    lines = line_numbers(text)
    given = {}
    for name, raw in _flatten(document, ""):
        line = nearest_line(lines, name)
        where = f"{file}, line {line}" if line else str(file)
        with errors.gathering():
            _require_known(name, where)
            given[name] = _Given(raw, where, f"file {file}:{line}" if line else f"file {file}", file, lines)
    return given


def _read_text(file: Path) -> str:
    try:
        if file.stat().st_size > _FILE_LIMIT_BYTES:
            raise ConfigError(f"{file}: larger than 1 MiB, too large for a configuration; is this the right file?")
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such configuration file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not UTF-8 text; a configuration is a TOML file") from None
    except IsADirectoryError:
        raise ConfigError(f"{file}: is a directory, expected a TOML file") from None
    except OSError as error:
        raise UnavailableError(f"{file}: cannot be read: {error.strerror}") from None


def _from_environment(environment: Mapping[str, str], errors: ErrorList) -> dict[str, _Given]:
    given = {}
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX) or ENVIRONMENT_SEPARATOR not in variable:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).replace(ENVIRONMENT_SEPARATOR, ".").lower()
        where = f"environment variable {variable}"
        with errors.gathering():
            _require_known(name, where)
            given[name] = _Given(environment[variable], where, f"env {variable}", is_text=True)
    return given


def _from_flags(flags: Sequence[str], errors: ErrorList) -> dict[str, _Given]:
    given = {}
    for flag in flags:
        name, equals, text = flag.partition("=")
        where = f"--set {flag}"
        with errors.gathering():
            if not equals or not name:
                raise ConfigError(f"{where}: expected KEY=VALUE, such as --set listeners.tcp.port=1883")
            _require_known(name, f"--set {name}")
            given[name] = _Given(text, where, "flag --set", is_text=True)
    return given


def _toml_value(name: str, entry: _Given) -> object:
    if not entry.is_text:
        return entry.raw
    try:
        return _key_of(name).kind.from_text(str(entry.raw))
    except ValueError as error:
        raise ConfigError(f"{entry.where}: {name}: {error}") from None


def _read(name: str, entry: _Given, base: Path | None) -> object:
    raw = _toml_value(name, entry)
    try:
        value = _key_of(name).kind.read(raw)
    except WrongTablesError as found:
        errors = ErrorList()
        for error in found.errors:
            errors.add(ConfigError(f"{entry.of_table(name, error.number, error.key)}: {name}: {error}"))
        errors.raise_any()
        raise
    except RemovedError as error:
        raise ConfigError(f"{entry.where}: {name}: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{entry.where}: {name}: {error}, got {_shown(raw)}") from None
    if isinstance(value, Path) and base is not None and entry.origin.startswith("file "):
        return base / value
    return value


def _shown(raw: object) -> str:
    text = repr(raw)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _require_known(name: str, where: str) -> None:
    named = _of_named_listener(name)
    if named and not _LISTENER_NAME.fullmatch(named.listener.partition(".")[2]):
        what = "a listener's name is 1 to 32 of a-z, 0-9 and single _, and begins with a letter"
        raise ConfigError(f"{where}: unknown setting {name!r}: {what}")
    if name in _SETTINGS or (named and named.like in _SETTINGS):
        return
    if name in _REMOVED:
        raise ConfigError(f"{where}: setting {name!r} was removed: {_REMOVED[name]}")
    for known, sentence in _LIVES_ELSEWHERE.items():
        if name == known or name.startswith(f"{known}."):
            raise ConfigError(f"{where}: unknown setting {name!r}: {sentence}")
    if name in _SECTION_NAMES:
        raise ConfigError(f"{where}: {name!r} is a section, expected a table with keys such as {_first_key(name)!r}")
    nearest = _nearest_key(named) if named else _nearest_name(name)
    hint = f"; did you mean {nearest!r}?" if nearest else "; `iothub config show` lists all settings"
    raise ConfigError(f"{where}: unknown setting {name!r}{hint}")


def _nearest_name(name: str) -> str | None:
    """Return the most similar key: one with the same last word, else by the whole name, else by its last word alone."""
    leaf = name.rpartition(".")[2]
    leaves = {known.rpartition(".")[2]: known for known in reversed(_SETTINGS)}
    namesakes = [known for known in _SETTINGS if known.rpartition(".")[2] == leaf]
    close = difflib.get_close_matches(name, namesakes, n=1, cutoff=0.4)
    close = close or difflib.get_close_matches(name, list(_SETTINGS), n=1, cutoff=0.75)
    if close:
        return close[0]
    alike = difflib.get_close_matches(leaf, list(leaves), n=1, cutoff=0.8)
    return leaves[alike[0]] if alike else None


def _nearest_key(named: _OfNamedListener) -> str | None:
    prefix = f"listeners.{kind_of(named.listener)}."
    keys = [name.removeprefix(prefix) for name in _SETTINGS if name.startswith(prefix)]
    close = difflib.get_close_matches(named.key, keys, n=1)
    return f"listeners.{named.listener}.{close[0]}" if close else None


def _first_key(section: str) -> str:
    return next(name for name in _SETTINGS if name.startswith(f"{section}."))


def _flatten(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, dict) and dotted not in _SETTINGS:
            if not value and dotted not in _SECTION_NAMES:
                yield dotted, value
            yield from _flatten(value, f"{dotted}.")
        else:
            yield dotted, value


def _build(section: type, prefix: str, values: Mapping[str, object]) -> object:
    arguments: dict[str, object] = {}
    for field in dataclasses.fields(section):
        key = field.metadata.get("key")
        if key is None:
            if inner := _inner_section(field):
                arguments[field.name] = _build(inner, f"{prefix}{field.name}.", values)
        elif (name := prefix + _key_name(field.name, key)) in values:
            arguments[field.name] = values[name]
    return cast("object", section(**arguments))


def _inner_section(field: dataclasses.Field[object]) -> type | None:
    """Return the section that a field which is no setting holds; None: it holds the named listeners."""
    inner = cast("object", field.default_factory)
    return inner if isinstance(inner, type) else None


def _with_named(listeners: Listeners, values: Mapping[str, object]) -> Listeners:
    """Add the named listeners. What one does not say is as in the table of its kind, but for the port."""
    own: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        if named := _of_named_listener(name):
            own.setdefault(named.listener, {})[named.key] = value
    made: list[tuple[str, Listener]] = [
        (name, dataclasses.replace(listeners.find(name), **own[name])) for name in sorted(own)
    ]
    return dataclasses.replace(listeners, named=tuple(made))


def _key_name(attribute: str, key: Key) -> str:
    """Return the name in the file: a duration carries its unit in the value, so the attribute's `_s` is left out."""
    return attribute.removesuffix("_s") if key.kind.label.startswith("duration") else attribute


def _declared(section: type, prefix: str) -> Iterator[Section]:
    settings = []
    nested = []
    for field in dataclasses.fields(section):
        key = field.metadata.get("key")
        if key is None:
            if inner := _inner_section(field):
                nested.append((inner, f"{prefix}{field.name}."))
        else:
            settings.append(Setting(prefix + _key_name(field.name, key), key, field.default))
    if settings:
        yield Section(prefix.rstrip("."), (section.__doc__ or "").strip(), tuple(settings))
    for inner, inner_prefix in nested:
        yield from _declared(inner, inner_prefix)


def value_of(config: Config, name: str) -> object:
    """Return the value of a setting by its dotted name; of a named listener that is not there, as `Listeners.find` has it."""
    if named := _of_named_listener(name):
        return getattr(config.listeners.find(named.listener), named.key)
    value: object = config
    for part in name.split("."):
        value = getattr(value, part) if hasattr(value, part) else getattr(value, f"{part}_s")
    return value


_Rule = tuple[tuple[str, ...], str]
"""A mistake in settings that are valid alone: the settings, or sections, that it follows from, and its text."""


def _check_together(examined: Examined, given: Mapping[str, _Given]) -> None:
    """Gather what is wrong in settings that are valid alone but do not work together."""
    config = examined.loaded.config
    rules = (
        _named_listener_rules,
        _tls_rules,
        _address_rules,
        _kafka_rules,
        _redis_rules,
        _shared_cache_rules,
        _server_rules,
        _cluster_rules,
        _module_rules,
    )
    for rule in rules:
        for names, text in rule(config, given):
            if examined.is_known(*names):
                examined.errors.add(ConfigError(text))


def _named_listener_rules(config: Config, given: Mapping[str, _Given]) -> Iterator[_Rule]:
    for name, _ in config.listeners.named:
        section = f"listeners.{name}"
        if f"{section}.port" not in given:
            where = next(entry.where for key, entry in given.items() if key.startswith(f"{section}."))
            yield (), f'{where}: {section} needs a port of its own; port = "off" turns it off'


def _tls_rules(config: Config, given: Mapping[str, _Given]) -> Iterator[_Rule]:
    for listener_name, listener in config.listeners.by_name().items():
        if not isinstance(listener, TlsListener) or listener.port is None:
            continue
        section, kind = f"listeners.{listener_name}", f"listeners.{kind_of(listener_name)}"
        if listener.client_certificates in _NEED_AUTHORITIES and listener.client_ca_file is None:
            name = f"{section}.client_certificates"
            name = name if name in given else f"{kind}.client_certificates"
            what = f'{given[name].where}: {name} = "{listener.client_certificates}"'
            yield (
                (f"{section}.client_ca_file", f"{kind}.client_ca_file"),
                f"{what} needs {section}.client_ca_file, the authorities that sign the certificates of clients",
            )
        for word, file in (("cert_file", listener.cert_file), ("key_file", listener.key_file)):
            if file is None:
                where = given[f"{section}.port"].where
                yield (
                    (f"{section}.{word}", f"{kind}.{word}"),
                    f"{where}: {section} needs {word}; `iothub cert self-signed DIR` makes one for tests",
                )


def _server_rules(config: Config, given: Mapping[str, _Given]) -> Iterator[_Rule]:
    if not config.redis.addresses and (on_redis := needs_on_redis(config)):
        what = _choice_of(config, given, *on_redis[0])
        yield ("redis.addresses",), f'{what} needs redis.addresses, such as ["127.0.0.1:6379"]'
    if not config.hbase.thrift and (on_hbase := needs_on_hbase(config)):
        what = _choice_of(config, given, *on_hbase[0])
        yield ("hbase.thrift",), f'{what} needs hbase.thrift, the gateways of HBase, such as ["hbase-1:9090"]'


def _choice_of(config: Config, given: Mapping[str, _Given], need: str, driver: str) -> str:
    """Return where a driver is set; for `queues.choices`, in which table."""
    if need != "queues.choices":
        return f'{given[need].where}: {need} = "{driver}"'
    number = next(number for number, choice in enumerate(config.queues.choices, 1) if choice.driver == driver)
    return f'{given[need].of_table(need, number, "driver")}: {need}: in table {number}: driver = "{driver}"'


def needs_on_redis(config: Config) -> list[tuple[str, str]]:
    """Return the settings that choose Redis, with their values."""
    drivers = (
        ("quota.ledger", config.quota.ledger),
        ("queues.driver", config.queues.driver),
        *(("queues.choices", choice.driver) for choice in config.queues.choices),
    )
    return [(name, driver) for name, driver in drivers if driver == "redis"]


def needs_on_hbase(config: Config) -> list[tuple[str, str]]:
    """Return the settings that choose HBase, with their values."""
    drivers = (
        ("queues.driver", config.queues.driver),
        *(("queues.choices", choice.driver) for choice in config.queues.choices),
        ("state.driver", config.state.driver),
        ("retained.driver", config.retained.driver),
    )
    return [(name, driver) for name, driver in drivers if driver.startswith("hbase")]


def _kafka_rules(config: Config, given: Mapping[str, _Given]) -> Iterator[_Rule]:
    kafka = config.kafka
    if not kafka.brokers:
        if config.events.driver == "kafka":
            where = given["events.driver"].where
            yield (
                ("kafka.brokers",),
                f'{where}: events.driver = "kafka" needs kafka.brokers, such as ["kafka-1:9092"]',
            )
        return
    where = given["kafka.brokers"].where
    if kafka.security_protocol.startswith("SASL") and (not kafka.sasl_username or kafka.sasl_password_file is None):
        yield (
            ("kafka.sasl_username", "kafka.sasl_password_file"),
            f"{where}: kafka.security_protocol = {kafka.security_protocol} needs kafka.sasl_username and kafka.sasl_password_file",
        )
    if (kafka.cert_file is None) != (kafka.key_file is None):
        yield (
            ("kafka.cert_file", "kafka.key_file"),
            f"{where}: kafka.cert_file and kafka.key_file must be set together",
        )


def _redis_rules(config: Config, given: Mapping[str, _Given]) -> Iterator[_Rule]:
    redis = config.redis
    if not redis.addresses:
        return
    where = given["redis.addresses"].where
    if (redis.cert_file is None) != (redis.key_file is None):
        yield (
            ("redis.cert_file", "redis.key_file"),
            f"{where}: redis.cert_file and redis.key_file must be set together",
        )
    if redis.username and redis.password_file is None:
        yield ("redis.password_file",), f"{where}: redis.username needs redis.password_file"
    if redis.security == "plain" and (redis.ca_file or redis.cert_file):
        yield ("redis.security",), f'{where}: redis.ca_file and redis.cert_file are for redis.security = "tls"'


def _shared_cache_rules(config: Config, given: Mapping[str, _Given]) -> Iterator[_Rule]:
    if config.auth.shared_cache != "redis":
        return
    where = given["auth.shared_cache"].where
    if not config.redis.addresses:
        yield (
            ("redis.addresses",),
            f'{where}: auth.shared_cache = "redis" needs redis.addresses, such as ["127.0.0.1:6379"]',
        )
    if config.auth.cache_s < _LEAST_CACHE_S:
        yield (
            ("auth.cache",),
            f'{where}: auth.shared_cache = "redis" needs auth.cache of {_LEAST_CACHE_S:g}s or more, because a cached answer is used '
            "that long after the last poll for changes",
        )


def _cluster_rules(config: Config, given: Mapping[str, _Given]) -> Iterator[_Rule]:
    if config.cluster.listen:
        yield from cluster_rules.mistakes(config, given["cluster.listen"].where)


def _module_rules(config: Config, given: Mapping[str, _Given]) -> Iterator[_Rule]:
    for rules in (worker_rules, admin_rules):
        yield from rules.mistakes(config, lambda name: given[name].where if name in given else None)


def _address_rules(config: Config, given: Mapping[str, _Given]) -> Iterator[_Rule]:
    taken: dict[tuple[str, int], str] = {}
    sections_with_port = (
        *((f"listeners.{name}", each.bind, each.port) for name, each in config.listeners.by_name().items()),
        ("http", config.http.bind, config.http.port),
    )
    for section, bind, port in sections_with_port:
        if not port:
            continue
        other = taken.setdefault((bind, port), section)
        if other != section:
            where = given[f"{section}.port"].where
            yield (
                (f"{section}.bind", f"{other}.bind", f"{other}.port"),
                f"{where}: {section}.port: {bind} port {port} is already used by {other}; choose another port",
            )


_NEED_AUTHORITIES = ("optional", "required")  # values of client_certificates
_LEAST_CACHE_S = 2.0  # longer than the longest sql.poll_interval

_SECTIONS = tuple(_declared(Config, ""))
_SETTINGS = {setting.name: setting for section in _SECTIONS for setting in section.settings}
_SECTION_NAMES = frozenset(section.name for section in _SECTIONS) | {"listeners"}
