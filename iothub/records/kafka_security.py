"""TLS and SASL towards Kafka, for the hub and for jobs.

Knows no client; a password stays in its file until a client is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iothub.base.errors import ConfigError


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """As section `kafka` of the configuration has it."""

    protocol: str = "PLAINTEXT"
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    sasl_mechanism: str = "SCRAM-SHA-512"
    sasl_username: str = ""
    sasl_password_file: Path | None = None

    def options(self) -> dict[str, Any]:
        """Return TLS and SASL as kafka-python wants them. Raises ConfigError for a file that cannot be read."""
        options: dict[str, Any] = {"security_protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            files = {"ssl_cafile": self.ca_file, "ssl_certfile": self.cert_file, "ssl_keyfile": self.key_file}
            options |= {name: str(file) for name, file in files.items() if file is not None}
        if self.protocol.startswith("SASL"):
            options |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.sasl_username,
                "sasl_plain_password": self._password(),
            }
        return options

    def _password(self) -> str:
        file = self.sasl_password_file
        if file is None:
            raise ConfigError("kafka.security_protocol with SASL needs kafka.sasl_password_file")
        try:
            return file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise ConfigError(f"kafka.sasl_password_file: {file}: {why}") from None
