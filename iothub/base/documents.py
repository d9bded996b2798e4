"""What somebody has written as YAML or JSON, as plain values.

Knows no file and not what the values mean.
"""

from __future__ import annotations

import json
from typing import Any

from iothub.base.errors import ConfigError
from iothub.base.text import clean

MOST_VALUES = 5_000_000  # aliases of YAML counted as often as they are used: a few lines can stand for billions
MOST_LEVELS = 32  # of lists and objects in each other; an alias can be inside of itself
_PLAIN = (str, int, float, bool, type(None))
_TOO_DEEP = f"expected at most {MOST_LEVELS} lists and objects in each other"


def read_document(content: bytes) -> object:
    """Return texts, numbers, true and false, null, lists and objects with names; JSON is YAML. Raises ConfigError, with the place."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"expected UTF-8: {error.reason} at octet {error.start}") from None
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text, object_pairs_hook=once)  # exports are large, and YAML takes fifty times as long
        except (ValueError, RecursionError, ConfigError):
            pass  # YAML has such lists and objects, too, with fewer quotes, and knows the line of what is wrong
    document = _read_yaml(text)
    _require_plain(document)
    return document


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Raises ConfigError: a name is there twice, and only one of both would count."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise ConfigError(f"`{clean(twice)}` is given twice in one object")
    return found


def _read_yaml(text: str) -> object:
    import yaml

    kind = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        loader = kind(text)
        try:
            node = loader.get_single_node()
            _require_once(node)
            return None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError(f"expected YAML or JSON: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(_TOO_DEEP) from None
    except ValueError as error:  # a date of YAML that there is not, such as 2026-02-30
        raise ConfigError(f"expected YAML or JSON: {error}; a text that looks like a date needs quotes") from None


def _require_once(document: Any) -> None:
    """Raise ConfigError if an object of a document of YAML has a name twice."""
    left, seen = [document], set()
    while left:
        node = left.pop()
        if node is None or id(node) in seen or isinstance(node.value, str):
            continue
        seen.add(id(node))
        if not node.value or not isinstance(node.value[0], tuple):
            left += node.value
            continue
        names: set[tuple[str, str]] = set()
        for name, value in node.value:
            left.append(value)
            if isinstance(name.value, str):
                if (name.tag, name.value) in names:
                    line = name.start_mark.line + 1
                    raise ConfigError(f"line {line}: `{clean(name.value)}` is given twice in one object")
                names.add((name.tag, name.value))


def _require_plain(document: object) -> None:
    """Raise ConfigError if a value is none of JSON's, or if there are too many of them."""
    left, count = [(document, "", 0)], 0
    while left:
        value, place, level = left.pop()
        count += 1
        if level > MOST_LEVELS:
            raise ConfigError(_TOO_DEEP)
        if count > MOST_VALUES:
            raise ConfigError(f"expected at most {MOST_VALUES:,} values, with aliases (`*name`) where they are used")
        if isinstance(value, list):
            left += [(each, f"{place}[{number}]", level + 1) for number, each in enumerate(value)]
        elif isinstance(value, dict):
            for name in value:
                if not isinstance(name, str):
                    raise ConfigError(f"{place or 'the file'}: the name {name} is no text: put it in quotes")
            left += [(each, f"{place}.{name}" if place else name, level + 1) for name, each in value.items()]
        elif not isinstance(value, _PLAIN):
            kind = type(value).__name__
            raise ConfigError(f"{place or 'the file'}: {value} is a {kind} in YAML: put it in quotes")
