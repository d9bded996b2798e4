"""The errors of iothub: one root, and one class for each question "what should the edge do about it?".

Knows nothing of MQTT packets, of SQL or of click: an error states facts, the edge (CLI, listener, service loop) decides what to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class IotHubError(Exception):
    """Root of all errors that this product raises on purpose. The text is one line for a person: what happened, what was expected, what to do.

    `details`: further lines where one says too little, such as the bad lines of a file.
    """

    exit_code = 1
    details: tuple[str, ...] = ()


class ConfigError(IotHubError):
    """The configuration or the command line is wrong."""

    exit_code = 2


class NotFoundError(IotHubError):
    """The named object does not exist."""

    exit_code = 3


class ConflictError(IotHubError):
    """It exists already, is held by somebody else, or is of a version that this program does not know."""

    exit_code = 4


class NotOursError(ConflictError):
    """A store belongs to another installation: what is in it is not this one's, now and later."""


class ExpelledError(ConflictError):
    """The hubs on the same stores go on without this one: it begins again as a new incarnation."""


class DeniedError(IotHubError):
    """The caller may not do this."""

    exit_code = 5


class TenantLimitError(IotHubError):
    """A tenant's limit says no. `limit` is the quota's name (docs/reference/quotas.md); empty: another process has said so."""

    exit_code = 6

    def __init__(self, message: str, *, limit: str = "") -> None:
        super().__init__(message)
        self.limit = limit


class UnavailableError(IotHubError):
    """Something needed is not reachable, not writable, or did not answer in time."""

    exit_code = 7


class InterruptedWorkError(IotHubError):
    """A person stopped it with Ctrl-C; the text says what is done, what is not, and how to continue."""

    exit_code = 130


class PartlyDoneError(IotHubError):
    """Work that is done in parts has stopped: the text says what is done, and how to continue. `exit_code` is that of what stopped it."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class BackendError(UnavailableError):
    """A store failed. `retryable`: the same call may succeed later; `is_written` is False only when nothing was written for certain.

    `remedy`: what somebody must correct, where that is known; the text is `fact` and `remedy`.
    """

    def __init__(self, message: str, *, retryable: bool, is_written: bool = False, remedy: str = "") -> None:
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.fact = message
        self.remedy = remedy
        self.retryable = retryable
        self.is_written = is_written


class CorruptRecordError(IotHubError):
    """A stored record is damaged; it is refused by name, never misread."""


class LocalProtocolError(IotHubError):
    """This program misused the protocol library: a defect of ours, never of the peer."""


class ErrorList:
    """Gathers errors, so that a person hears of all of them at once."""

    def __init__(self) -> None:
        self._errors: list[IotHubError] = []

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Keep an error of the block instead of raising it."""
        try:
            yield
        except IotHubError as error:
            self.add(error)

    def add(self, error: IotHubError) -> None:
        self._errors.append(error)

    def raise_any(self) -> None:
        """Raise the first error; its `details` are its own and the texts of the others. Does nothing without one."""
        if not self._errors:
            return
        first, *others = self._errors
        first.details = (*first.details, *(text for other in others for text in (str(other), *other.details)))
        raise first

    def raise_first(self) -> None:
        """Raise the first error, if there is one; the others say the same."""
        if self._errors:
            raise self._errors[0]


_BY_EXIT_CODE: dict[int, type[IotHubError]] = {
    error.exit_code: error
    for error in (ConfigError, NotFoundError, ConflictError, DeniedError, TenantLimitError, UnavailableError)
}


def error_of(exit_code: object, text: str, details: Iterable[str] = ()) -> IotHubError:
    """Return the error that another process reports by its exit code and texts."""
    kind = _BY_EXIT_CODE.get(exit_code, IotHubError) if isinstance(exit_code, int) else IotHubError
    error = kind(text)
    error.details = tuple(details)
    return error
