"""The subject of a certificate as one line of text (RFC 4514), read and written so that two of them can be compared.

Knows no certificate and no TLS. What a listener has verified travels as text: `CN=dev1,O=Acme` is a whole subject, `=dev1` the common name
alone, where nothing else is known (no subject begins with "="). Values are compared exactly: a doubtful name is another name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from iothub.base.errors import ConfigError

MOST_CHARACTERS = 512

Attributes = tuple[tuple[str, str], ...]  # (type, value), sorted: a relative distinguished name may have several

COMMON_NAME = "CN"
_TYPES = {
    "commonname": COMMON_NAME,
    "organizationname": "O",
    "organizationalunitname": "OU",
    "countryname": "C",
    "stateorprovincename": "ST",
    "localityname": "L",
    "streetaddress": "STREET",
    "domaincomponent": "DC",
    "userid": "UID",
    "serialnumber": "SERIALNUMBER",
    "emailaddress": "EMAILADDRESS",
    "givenname": "GN",
    "surname": "SN",
    "title": "TITLE",
}
_KNOWN = {**_TYPES, **{short.lower(): short for short in _TYPES.values()}}
_CHARACTER = re.compile(r"\\([0-9A-Fa-f]{2})|\\(.)|(.)", re.DOTALL)
_SPECIAL = re.compile(r'[\\,+"<>;=]')
_OTHER_ORDER = re.compile(r"\s*[A-Za-z][A-Za-z0-9.-]*\s+=")
_PART = re.compile(r'\s*([A-Za-z][A-Za-z0-9.-]*)\s*=((?:[^\\,+"<>;]|\\.)*)(?:([,+])|$)', re.DOTALL)


def write(encoded: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Return the text of a subject, given in the order of its encoding: the text goes the other way, from the leaf up.

    Raises ConfigError: it has a type that is not known here, a value that cannot be shown, or is too long.
    """
    return _join(tuple(_sorted(part) for part in encoded)[::-1])


def canonical(text: str) -> str:
    """Return a subject that somebody wrote in the one form that `write` gives. Raises ConfigError."""
    if _OTHER_ORDER.match(
        text
    ):  # what openssl prints when it is not asked for RFC 2253, from the root down: another name
        raise ConfigError(
            "the subject has blanks around its '=': give it from the leaf up, "
            "as `openssl x509 -noout -subject -nameopt RFC2253 -in FILE` prints it"
        )
    return _join(_parse(text))


def common_name(shown: str) -> str | None:
    """Return the one common name of what a listener verified; None if there is none, or more than one."""
    if shown.startswith("="):
        return shown[1:]
    try:
        names = [value for part in _parse(shown) for kind, value in part if kind == COMMON_NAME]
    except ConfigError:
        return None
    return names[0] if len(names) == 1 else None


def fits(wanted: str, shown: str) -> bool:
    """Whether what a listener verified is what a device was given: a whole subject (it has a "="), else a common name."""
    return shown == wanted if "=" in wanted else common_name(shown) == wanted


def _parse(text: str) -> tuple[Attributes, ...]:
    parts: list[list[tuple[str, str]]] = [[]]
    at, mark = 0, ","
    while mark:
        found = _PART.match(text, at)
        if found is None:
            raise ConfigError(f"the subject is not readable at character {at + 1}: expected a form like CN=dev1,O=Acme")
        if found[2].lstrip().startswith("#"):
            raise ConfigError(
                f"the subject's {found[1]} is in hexadecimal: give it as text, or give only the common name"
            )
        parts[-1].append((found[1], _unescaped(found[2])))
        at, mark = found.end(), found[3] or ""
        if mark == ",":
            parts.append([])
    return tuple(_sorted(part) for part in parts)


def _unescaped(raw: str) -> str:
    """Blanks around a value are not part of it, unless they are escaped; hexadecimal pairs are octets of UTF-8."""
    stripped = raw.lstrip()
    kept = stripped.rstrip()
    if len(kept) < len(stripped) and (len(kept) - len(kept.rstrip("\\"))) % 2:
        kept = stripped[: len(kept) + 1]
    octets = bytearray()
    for found in _CHARACTER.finditer(kept):
        octets += bytes.fromhex(found[1]) if found[1] else (found[2] or found[3]).encode("utf-8", "surrogatepass")
    try:
        return octets.decode()
    except UnicodeDecodeError:
        raise ConfigError("the subject is not UTF-8 text") from None


def _sorted(part: Iterable[tuple[str, str]]) -> Attributes:
    attributes = []
    for kind, value in part:
        known = _KNOWN.get(kind.lower())
        if known is None:
            names = ", ".join(dict.fromkeys(_TYPES.values()))
            raise ConfigError(f"a subject's {kind!r} is not compared: expected {names}; or give only the common name")
        if not value or not value.isprintable():
            raise ConfigError(f"the subject's {known} is empty or not printable")
        attributes.append((known, value))
    return tuple(sorted(attributes))


def _join(parts: tuple[Attributes, ...]) -> str:
    text = ",".join("+".join(f"{kind}={_escaped(value)}" for kind, value in part) for part in parts)
    if not 1 <= len(text) <= MOST_CHARACTERS:
        raise ConfigError(f"the subject is empty or longer than {MOST_CHARACTERS} characters")
    return text


def _escaped(value: str) -> str:
    text = _SPECIAL.sub(lambda found: f"\\{found[0]}", value)
    if text[0] in " #":
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if text.endswith(" ") and len(value) > 1 else text
