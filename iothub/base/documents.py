"""What somebody has written as YAML or JSON, as plain values.

Knows no file and not what the values mean. Of YAML only what JSON can say is read, so no merges and tags: its library would make dates of texts,
numbers of times of day, and minutes of work of a few lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from iothub.base.errors import ConfigError
from iothub.base.text import clean

MOST_YAML_BYTES = 16 << 20  # it takes fifty times as long as JSON; what is larger is an export
MOST_LEVELS = 32  # of lists and objects in each other; an alias can be inside of itself
MOST_TIMES = 4  # so many times the characters of a file of YAML, or
SOME_CHARACTERS = 1 << 20  # so many, are read of it with its aliases: a few lines can stand for billions

_SHOWN = 64  # characters of a name in a place
_PERHAPS_HALF = re.compile(r"\\(u|U0000)[dD][89a-fA-F]|[\ud800-\udfff]")
_TOO_DEEP = f"expected at most {MOST_LEVELS} lists and objects in each other"
_TAG = "tag:yaml.org,2002:"
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_KINDS = {"int": "a number", "float": "a number", "timestamp": "a date"}  # in another form than JSON has
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")  # 010 is 8 for some and 10 for others
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})(\.[0-9]{0,18})?([eE][-+]?[0-9]{1,3})?")


class NotJsonError(ConfigError):
    """It is something else."""


def read_json(content: bytes) -> object:
    """Return what JSON says. Raises ConfigError: a name is twice in one object, or a text has half of a character; NotJsonError."""
    try:
        text = content.decode(json.detect_encoding(content), "surrogatepass")
    except ValueError as error:
        raise NotJsonError(f"expected JSON: {error}") from None
    return _require_characters(_read_json(text.removeprefix("\ufeff")), text)


def _read_json(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise NotJsonError(f"expected JSON: {error}") from None


def read_document(content: bytes, most_yaml_bytes: int = MOST_YAML_BYTES) -> object:
    """Return texts, numbers, true and false, null, lists and objects with names; JSON is YAML. Raises ConfigError, with the place."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"expected UTF-8: {error.reason} at octet {error.start}") from None
    is_small = len(content) <= most_yaml_bytes
    if text.lstrip()[:1] in ("{", "["):
        try:
            found = _require_levels(_read_json(text))
        except ConfigError:
            if (
                not is_small
            ):  # else it may be YAML, which has such lists and objects, too, and the line of a name given twice
                raise
        else:
            return _require_characters(found, text)
    if not is_small:
        raise ConfigError(
            f"expected at most {most_yaml_bytes >> 20} MiB of YAML: write it as JSON, which may be larger"
        )
    return _require_characters(_read_yaml(text), text)


def _require_characters(document: object, text: str) -> object:
    """Return what a text says, or raise ConfigError: an escape can spell out half of a character, and no store can write that."""
    if _PERHAPS_HALF.search(text) is not None:  # pairs of them are whole characters
        place = _half_in(_require_levels(document))
        if place is not None:
            raise ConfigError(f"`{clean(place.lstrip('.'))}` has half of a character (a lone surrogate)")
    return document


def _half_in(found: object) -> str | None:
    """Return where a text has half of a character: `.name[3]`, from here on; None: nowhere."""
    if isinstance(found, str):
        try:
            found.encode()
        except UnicodeEncodeError:
            return ""
    elif isinstance(found, dict):
        for name, each in found.items():
            inner = _half_in(each) if _half_in(name) is None else ""
            if inner is not None:
                return f".{name[:_SHOWN]}{inner}"
    elif isinstance(found, list):
        for number, each in enumerate(found):
            inner = _half_in(each)
            if inner is not None:
                return f"[{number}]{inner}"
    return None


def _require_levels(document: object) -> object:
    """Return it, or raise ConfigError: whoever writes it again calls itself for each level."""
    level = [document]
    for _ in range(MOST_LEVELS):
        level = [each for found in level if isinstance(found, list | dict) for each in _members(found)]
        if not level:
            return document
    raise ConfigError(_TOO_DEEP)


def _members(found: list[object] | dict[str, object]) -> Iterable[object]:
    return found if isinstance(found, list) else found.values()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Raises ConfigError: a name is there twice, and only one of both would count."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ConfigError(f"`{clean(name)}` is given twice in one object")
            seen.add(name)
    return found


def _read_yaml(text: str) -> object:
    import yaml

    kind = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        loader = kind(text)
        try:
            document = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError(f"expected YAML or JSON: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(_TOO_DEEP) from None
    return None if document is None else _Values(max(MOST_TIMES * len(text), SOME_CHARACTERS)).of(document, 1)


class _Values:
    """Makes values of the nodes of one document, and copies of them for aliases, of so many characters together."""

    def __init__(self, characters: int) -> None:
        self._characters = characters

    def of(self, node: Any, level: int) -> object:
        """Return the value of a node. Raises ConfigError, with its line."""
        self._characters -= 1 + (len(node.value) if node.id == "scalar" else 0)
        if self._characters < 0:
            raise ConfigError("aliases (`*name`) make too much of it: write out what they stand for, or use JSON")
        if level > MOST_LEVELS:
            raise ConfigError(f"{_line(node)}{_TOO_DEEP}")
        if node.id == "scalar":
            return _scalar(node)
        if node.id == "sequence" and node.tag == f"{_TAG}seq":
            return [self.of(each, level + 1) for each in node.value]
        if node.id == "mapping" and node.tag == f"{_TAG}map":
            return self._object(node, level)
        raise ConfigError(f"{_line(node)}a {_kind(node)} of YAML is not read, expected a list or an object")

    def _object(self, node: Any, level: int) -> dict[str, object]:
        found: dict[str, object] = {}
        for given, value in node.value:
            if _kind(given) == "merge":
                raise ConfigError(f"{_line(given)}merges (`<<`) are not read: write the names out")
            name = self.of(given, level + 1)
            if not isinstance(name, str):
                raise ConfigError(f"{_line(given)}expected a text as a name: put it in quotes")
            if name in found:
                raise ConfigError(f"{_line(given)}`{clean(name)}` is given twice in one object")
            found[name] = self.of(value, level + 1)
        return found


def _scalar(node: Any) -> object:
    kind, text = _kind(node), node.value
    if kind == "str":
        return text
    if kind == "null" and text.lower() in ("", "~", "null"):
        return None
    if kind == "bool" and text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if kind == "int" and _WHOLE.fullmatch(text):
        return int(text)
    if kind == "float" and _DECIMAL.fullmatch(text):
        return float(text)
    what = _KINDS.get(kind, f"a {kind}")
    raise ConfigError(f"{_line(node)}{clean(text) or 'nothing'} is {what} in YAML: put it in quotes if it is a text")


def _kind(node: Any) -> str:
    return clean(node.tag.removeprefix(_TAG))


def _line(node: Any) -> str:
    return f"line {node.start_mark.line + 1}: "
