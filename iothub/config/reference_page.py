"""The reference page of all settings, generated from their declarations: `iothub config show --reference`.

Knows no values: the page is the same for every hub. A test compares `docs/reference/configuration.md` with it.
"""

from __future__ import annotations

from collections.abc import Iterator

from iothub.config.loader import ENVIRONMENT_PREFIX, ENVIRONMENT_SEPARATOR, Section, sections

_INTRODUCTION = """\
# Configuration

This page is generated from `iothub/config/sections`: `.venv/bin/python docs/reference/generate.py`.

The first of these sources that has a value wins:

1. a flag: `iothub serve --set listeners.tcp.port=1884`
2. the environment: `IOTHUB_LISTENERS__TCP__PORT=1884` (only `IOTHUB_` names that contain `__` are settings)
3. the file: `iothub.toml` in the data directory, or the one given with `--config`; it begins with `config_version = 1` (assumed if missing)
4. the default

An unknown key stops the start with exit code 2; the message names file, line, key and the most similar known key.
`iothub config check` reports every mistake without starting the hub; `iothub config show --origin` shows the source of each value.

`iothub config reload`, or SIGHUP, makes a running hub read all of it again. `reload` says what becomes of a changed value: `now`: the hub applies
it (settings that only commands and jobs use are read by each of them); `restart`: the hub names it and keeps the old value until it is restarted.
A listener whose `bind` or `port` has changed keeps all its settings until then. A configuration with a mistake changes nothing.

A listener, or `http`, without a port is off. By default `listeners.tcp` is on, on 127.0.0.1:1883; it stays on
when other listeners are turned on, until it gets `port = "off"`. Port 0 takes any free port; `hub.json` in the data
directory and `iothub status` show which. Without any listener `iothub serve` does not start (exit code 2), because no client
could connect. Further listeners of a kind have a name, such as `[listeners.tls.partners]` (1 to 32 of
a-z, 0-9 and single `_`); one has every key of its kind, and takes what it does not name from the table of its kind, except `port`, which it must
name. A relative file name in the file is relative to the file's folder, elsewhere
to the working directory. Limits of tenants (packet sizes, rates, counts) are quotas, not settings: `iothub quota --help`.
"""


def render_reference() -> str:
    """Return the page in Markdown."""
    lines = [_INTRODUCTION]
    for section in sections():
        lines.extend(_section_lines(section))
    return "\n".join(lines).rstrip() + "\n"


def _section_lines(section: Section) -> Iterator[str]:
    yield f"## [{section.name}]\n"
    yield f"{section.sentence}\n"
    yield "| key | value | default | reload | meaning |"
    yield "| --- | --- | --- | --- | --- |"
    for setting in section.settings:
        kind = setting.key.kind
        name = setting.name.removeprefix(f"{section.name}.")
        default = _cell(kind.write(setting.default))
        yield f"| `{name}` | {_cell(kind.label)} | `{default}` | {setting.key.reload} | {_cell(setting.key.sentence)} |"
    variable = ENVIRONMENT_PREFIX + section.settings[0].name.upper().replace(".", ENVIRONMENT_SEPARATOR)
    yield f"\nIn the environment, for example: `{variable}`.\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
