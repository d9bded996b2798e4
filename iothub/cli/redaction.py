"""Takes secrets out of what leaves the machine: those that the settings and the data directory name, and whatever looks like one.

Knows no command. Texts that are made for people have no secrets; this is the second lock, for the message of a library that has a URL in it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

MARK = "***"
_LEAST = 4  # a shorter secret would be found in every word
_FILE_LIMIT_BYTES = 64 << 10
_PATTERNS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"(?<=Bearer )\S+"),
    re.compile(r"\$argon2\S+"),
)
_PASSWORD_OF_URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.\-]*://[^\s:/@]*:)[^\s\"']*@")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.\-]*://[^\s:/@]*:(.*)@")


class Redaction:
    """`files`: each holds a secret, whatever its form; those that cannot be read have nothing that could be found."""

    def __init__(self, files: Iterable[Path]) -> None:
        secrets = {secret for file in files for secret in _secrets_in(file) if len(secret) >= _LEAST}
        ordered = sorted(secrets, key=len, reverse=True)  # one may be a part of another
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        for pattern in _PATTERNS:
            text = pattern.sub(MARK, text)
        text = _PASSWORD_OF_URL.sub(rf"\1{MARK}@", text)
        return text if self._known is None else self._known.sub(MARK, text)

    def value(self, value: object) -> object:
        """Return JSON with every text in it redacted, names included; what JSON does not have becomes a text."""
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.value(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(part) for part in value]
        return value if value is None or isinstance(value, bool | int | float) else self.text(str(value))


def _secrets_in(file: Path) -> Iterator[str]:
    """Yield the forms in which the content of a file could be written elsewhere."""
    try:
        with file.open("rb") as opened:
            octets = opened.read(_FILE_LIMIT_BYTES)
    except OSError:
        return
    yield from (octets.hex(), base64.b64encode(octets).decode(), base64.urlsafe_b64encode(octets).decode().rstrip("="))
    with suppress(UnicodeDecodeError):
        text = octets.decode().strip()
        yield text
        if (url := _URL.match(text)) is not None:
            yield from (url[1], unquote(url[1]))
        elif "PRIVATE KEY" in text:
            yield from (line for line in text.splitlines() if not line.startswith("-----"))
