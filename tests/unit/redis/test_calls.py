"""Commands as values: their size, and scripts by their digest."""

from __future__ import annotations

import hashlib

import pytest

from iothub_services.redis.calls import RedisRefusedError, Script, command, script_call, single

ADD = Script("return redis.call('INCRBY', KEYS[1], ARGV[1])")


def test_script_is_called_by_the_digest_that_redis_gives_it() -> None:
    """SHA-1 of its text, in hexadecimal digits."""
    call = script_call(ADD, ["a"], 3)

    digest = hashlib.sha1(ADD.text.encode(), usedforsecurity=False).hexdigest()
    assert call.arguments == ("EVALSHA", digest, 1, "a", 3)
    assert call.spelled_out().arguments == ("EVAL", ADD.text, 1, "a", 3)


def test_plain_call_is_spelled_out_already() -> None:
    call = command("GET", b"a")

    assert call.spelled_out() is call


def test_size_counts_what_is_sent() -> None:
    """For the bounds of what waits."""
    assert command("SET", "k", b"x" * 1000).size - command("SET", "k", b"").size == 1000
    assert command("INCRBY", "k", 7).size > 0


def test_single_outcome_is_returned_or_raised() -> None:
    assert single(b"x") == b"x"
    with pytest.raises(RedisRefusedError, match="WRONGTYPE"):
        single(RedisRefusedError("WRONGTYPE"))
