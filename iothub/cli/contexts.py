"""The contexts of a person: REST APIs of other machines, each with a name, an address and where its key is. One file, readable by its owner only.

Knows no HTTP and prints nothing.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from iothub.base.errors import ConfigError, NotFoundError, UnavailableError

_FILE_MODE, _DIRECTORY_MODE = 0o600, 0o700
_KEY_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Context:
    """One REST API. The key is in `key`, in a file, or in a variable of the environment: exactly one of them."""

    name: str
    url: str
    key: str = field(default="", repr=False)
    key_file: str = ""
    key_env: str = ""
    ca_file: str = ""

    def read_key(self) -> str:
        """Raises UnavailableError, ConfigError: it cannot be read, or is no key."""
        text, where = (self.key, "the file of contexts") if self.key else self._found()
        key = text.strip()
        if not key or not key.isascii() or not key.isprintable():
            raise ConfigError(f"context {self.name}: {where} holds no key: put the text of an API key there")
        return key

    def is_key_readable_by_others(self) -> bool:
        """Say so of the file of the key. Raises OSError."""
        return bool(self.key_file) and bool(Path(self.key_file).stat().st_mode & 0o077)

    @property
    def key_from(self) -> str:
        """Say where the key is."""
        return self.key_file or (f"${self.key_env}" if self.key_env else "stored here")

    def _found(self) -> tuple[str, str]:
        if self.key_env:
            return os.environ.get(self.key_env, ""), f"the environment variable {self.key_env}"
        try:
            with Path(self.key_file).open(encoding="utf-8") as file:
                return file.read(_KEY_BYTES), self.key_file
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise UnavailableError(f"context {self.name}: {self.key_file} cannot be read: {reason}") from None


@dataclass(slots=True)
class Contexts:
    """All of them, by name. `current`: the one for commands that name none; empty: this machine."""

    by_name: dict[str, Context]
    current: str = ""

    def find(self, name: str) -> Context:
        """Raises NotFoundError."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise NotFoundError(
                f"there is no context {name!r} (known: {known}): `iothub context add NAME URL` adds one"
            )
        return self.by_name[name]


def path() -> Path:
    """Return where the file is: in the user's directory for configuration."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "iothub" / "contexts.json"


def load() -> Contexts:
    """Raises UnavailableError: the file cannot be read. ConfigError: it is damaged, or others can read the keys in it."""
    where = path()
    try:
        with where.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            content = json.load(file)
        found = [Context(**each) for each in content["contexts"]]
        current = str(content["current"])
    except FileNotFoundError:
        return Contexts({})
    except OSError as error:
        raise UnavailableError(f"{where}: cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError):
        raise ConfigError(
            f"{where}: damaged: delete it, and add the contexts again with `iothub context add`"
        ) from None
    if mode & 0o077 and any(each.key for each in found):
        raise ConfigError(f"{where}: others can read the keys in it: run `chmod 600 {where}`, and rotate the keys")
    return Contexts({each.name: each for each in found}, current)


def save(contexts: Contexts) -> None:
    """Raises UnavailableError. The file is replaced at once or not at all."""
    where = path()
    beside = where.with_suffix(f".{os.getpid()}.new")
    content = {"current": contexts.current, "contexts": [asdict(each) for each in contexts.by_name.values()]}
    try:
        where.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE), "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
        beside.replace(where)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise UnavailableError(f"{where}: cannot be written: {error.strerror}") from None


def checked_url(text: str) -> str:
    """Return the address of an API without `/api/v1`. Raises ConfigError: it is none."""
    if not _is_address(text):
        raise ConfigError(f"{text!r} is no address of an API: expected one such as https://iothub.example.com")
    return text.rstrip("/").removesuffix("/api/v1")


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        is_server = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_server and not (parts.query or parts.fragment or parts.username is not None)


def is_readable_on_the_way(context: Context) -> bool:
    """Whether others can read the key on its way."""
    parts = urlsplit(context.url)
    return parts.scheme == "http" and parts.hostname not in {"localhost", "127.0.0.1", "::1"}
