"""What kafka-python's lines say about why there is no connection, and what somebody must correct: the key of the settings.

Knows words and no client: the library's errors often say only that time is over, the cause is in its log.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import NamedTuple

_WORDS = 300  # characters of a line of the library
_FRESH_S = 30.0  # an older line is of another failure
_OF_CONNECTION = re.compile(
    r"(?:Bootstrap (?:connection|attempt) to \S+ failed|Connection failed|Connection lost): (.*?)(?: \(backoff [\d.]+ secs\))?$"
)

_FILES = "correct kafka.ca_file, kafka.cert_file, kafka.key_file: PEM files that fit each other"
_CERTIFICATE = "see kafka.cert_file and kafka.key_file: the brokers want a certificate, or another one"
_REMEDIES = (
    ("UnsupportedSaslMechanism", "correct kafka.sasl_mechanism"),
    (
        "SaslAuthenticationFailed",
        "correct kafka.sasl_username, or the password in the file of kafka.sasl_password_file",
    ),
    ("IllegalSaslState", "correct kafka.security_protocol: this listener wants no SASL"),
    ("AuthorizationFailed", "give the hub's user the right (ACL of Kafka)"),
    ("not valid for", "in kafka.brokers, and in advertised.listeners there, name the brokers as their certificates do"),
    ("certificate has expired", "renew the brokers' certificate, or look at the clock here"),
    ("CERTIFICATE_VERIFY_FAILED", "set kafka.ca_file to the authority that signed the brokers' certificates"),
    ("[X509", _FILES),
    ("PEM", _FILES),
    ("No such file", _FILES),
    ("_ALERT_", _CERTIFICATE),
    ("Handshake failed", "see kafka.security_protocol: this listener may speak no TLS"),
    ("Invalid frame length", "see kafka.security_protocol: this listener may speak TLS"),
)
_HUNG_UP = "socket disconnected"
_MAY_WANT_MORE = "see kafka.security_protocol: this listener may speak TLS or want SASL"


class Cause(NamedTuple):
    """`remedy`: what to correct, "" if that is not known; `is_refusal`: somebody is there, and waiting does not help."""

    text: str = ""
    remedy: str = ""
    is_refusal: bool = False


def remedy_of(text: str) -> str:
    """Return what to correct; "": nothing that is known."""
    return next((remedy for mark, remedy in _REMEDIES if mark in text), "")


class LastWords(logging.Handler):
    """What kafka-python complained of last: of several lines one that names a cause. Its lines go no further."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        super().__init__(logging.WARNING)
        self._now = now
        self._kept = Cause()
        self._weight = 0
        self._at_s = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        line = " ".join(record.getMessage().split())
        found = _OF_CONNECTION.search(line)
        cause = _cause((found[1] if found else line)[:_WORDS])
        weight = 3 if cause.is_refusal else 2 if cause.remedy else int(found is not None)
        if weight >= self._weight or record.created - self._at_s > _FRESH_S:
            self._kept, self._weight, self._at_s = cause, weight, record.created

    def take(self) -> Cause:
        """Return it once: the next failure may have another cause, and has one if nothing was said for long."""
        kept, self._kept, self._weight = self._kept, Cause(), 0
        return kept if self._now() - self._at_s <= _FRESH_S else Cause()


def listen() -> LastWords:
    """Take the lines of the library; those of its fate are told as our own errors and alarms."""
    logger = logging.getLogger("kafka")
    words = LastWords()
    logger.handlers[:] = [words]
    logger.propagate = False
    return words


def _cause(text: str) -> Cause:
    remedy = remedy_of(text)
    if remedy:
        return Cause(text, remedy, is_refusal=True)
    return Cause(text, _MAY_WANT_MORE if _HUNG_UP in text else "")
