"""What somebody must correct when Redis is there and no connection is made."""

from __future__ import annotations

import ssl

import pytest
from redis import exceptions

from iothub.base.units import Endpoint
from iothub.testing.clock import ManualClock
from iothub_services.redis.calls import RedisUnavailableError, command
from iothub_services.redis.link import Link, LinkLostError
from iothub_services.redis.places import Places
from iothub_services.redis.troubles import not_connected
from iothub_services.redis.wire import Wire, WireOptions, refusal

HERE, THERE = Endpoint("here", 1), Endpoint("there", 2)
PLAIN, TLS = WireOptions(), WireOptions(is_tls=True)


def trouble(error: Exception, options: WireOptions, cause: BaseException | None = None) -> RedisUnavailableError:
    error.__context__ = cause
    return not_connected(HERE, error, options)


@pytest.mark.parametrize(
    ("error", "key"),
    [
        (exceptions.AuthenticationError("Authentication required."), "set redis.password_file"),
        (exceptions.AuthenticationError("invalid username-password pair or user is disabled."), "redis.username"),
        (exceptions.AuthenticationError("AUTH <password> called without any password configured"), "wants no password"),
        (exceptions.ResponseError("DB index is out of range"), "correct redis.database"),
        (exceptions.BusyLoadingError("Redis is loading the dataset in memory"), "wait until it has loaded"),
        (exceptions.ConnectionError("max number of clients reached"), "raise maxclients"),
        (exceptions.NoPermissionError("this user has no permissions to run the 'client' command"), "redis.username"),
        (
            exceptions.ResponseError("NOAUTH HELLO must be called with the client already authenticated"),
            "password_file",
        ),
    ],
    ids=["no password", "wrong password", "unwanted password", "database", "loading", "full", "right", "unnamed"],
)
def test_refused_connection_names_the_key(error: Exception, key: str) -> None:
    """What the server said, and what to correct; the text has both."""
    told = trouble(error, PLAIN)

    assert "Redis at here:1" in told.fact
    assert str(error).rstrip(".") in told.fact
    assert key in told.remedy
    assert str(told) == f"{told.fact}; {told.remedy}"


@pytest.mark.parametrize(
    ("cause", "key"),
    [
        (
            ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed certificate in chain"),
            "redis.ca_file",
        ),
        (ssl.SSLCertVerificationError(1, "certificate is not valid for '127.0.0.2'"), "redis.addresses"),
        (ssl.SSLCertVerificationError(1, "certificate has expired"), "renew the certificate"),
        (ssl.SSLError(136, "[X509: NO_CERTIFICATE_OR_CRL_FOUND]"), "redis.key_file"),
        (FileNotFoundError(2, "No such file or directory"), "redis.key_file"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER]"), "redis.security"),
        (TimeoutError("_ssl.c:989: The handshake operation timed out"), "redis.security"),
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), "set redis.cert_file"),
        (ConnectionResetError(104, "Connection reset by peer"), "set redis.cert_file"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else each,
)
def test_failed_handshake_names_the_key(cause: BaseException, key: str) -> None:
    """redis-py's error says only "connecting"."""
    assert key in trouble(exceptions.ConnectionError("Error 1 connecting"), TLS, cause).remedy


def test_certificate_that_is_refused_is_named() -> None:
    """Ours: another one than the server takes."""
    options = WireOptions(is_tls=True, cert_file=__file__)  # type: ignore[arg-type]

    told = trouble(exceptions.ConnectionError("closed"), options, ssl.SSLError(1, "alert decrypt error"))

    assert "redis.cert_file" in told.remedy


def test_plain_words_that_are_cut_off_may_mean_tls() -> None:
    """Redis closes the connection and says nothing."""
    reset = trouble(exceptions.ConnectionError("(104)"), PLAIN, ConnectionResetError(104, "Connection reset by peer"))
    closed = trouble(exceptions.ConnectionError("Connection closed by server."), PLAIN)

    assert 'may speak TLS (redis.security = "tls")' in reset.remedy
    assert reset.remedy == closed.remedy


@pytest.mark.parametrize("options", [PLAIN, TLS], ids=["plain", "tls"])
@pytest.mark.parametrize("cause", [ConnectionRefusedError(111, "Connection refused"), TimeoutError("timed out")])
def test_nobody_there_has_no_remedy(options: WireOptions, cause: BaseException) -> None:
    """Start it: whoever asks knows that."""
    told = trouble(exceptions.ConnectionError(str(cause)), options, cause)

    assert (told.remedy, str(told)) == ("", told.fact)


@pytest.mark.parametrize("host", ["downloading-1", "noauth", "permission"])
def test_words_of_an_address_are_no_refusal(host: str) -> None:
    """The server has said nothing."""
    error = exceptions.ConnectionError(f"Error 111 connecting to {host}:6379. Connection refused.")

    assert trouble(error, PLAIN, ConnectionRefusedError(111, "Connection refused")).remedy == ""


def test_file_that_cannot_be_read_is_no_missing_right_of_redis() -> None:
    """Python's words for it are nearly those of Redis."""
    cause = PermissionError(13, "Permission denied")

    assert "redis.key_file" in trouble(exceptions.ConnectionError(f"Error 13 connecting: {cause}"), TLS, cause).remedy


def test_other_protocol_is_told() -> None:
    """An address of something else."""
    assert "redis.addresses" in trouble(exceptions.InvalidResponse("Protocol Error: b'HTTP'"), PLAIN).remedy


def test_missing_right_names_the_user() -> None:
    """Of any call, also after the connection was made."""
    refused = refusal(exceptions.NoPermissionError("this user has no permissions to run the 'ping' command"))

    assert "redis.username" in refused.remedy
    assert refusal(exceptions.ResponseError("WRONGTYPE")).remedy == ""


def test_one_of_several_servers_that_refuses_is_told_and_comes_through() -> None:
    """Not the one behind it that is away: the cause is the same at all of them, or can be corrected."""

    def open_wire(endpoint: Endpoint, options: WireOptions) -> Wire:
        if endpoint == HERE:
            raise trouble(exceptions.AuthenticationError("Authentication required."), options)
        raise RedisUnavailableError("Redis at there:2: Connection refused")

    link = Link(Places((HERE, THERE), PLAIN, open_wire=open_wire).connect, ManualClock(), 1.0)

    with pytest.raises(LinkLostError, match="here:1 refused the hub: Authentication required") as lost:
        link.exchange([command("PING")])
    assert "redis.password_file" in lost.value.remedy
