"""What a Redis server promises, judged by what it says of itself."""

from __future__ import annotations

import pytest

from iothub.base.errors import BackendError
from iothub_services.queues.redis.durability import faults, questions
from iothub_services.redis.calls import RedisRefusedError, RedisUnavailableError, Reply

GOOD = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
}


def settings_replies(version: str = "7.0.15", mode: str = "standalone", **changed: str) -> list[Reply]:
    found = GOOD | {name.replace("_", "-"): value for name, value in changed.items()}
    info = f"# Server\r\nredis_version:{version}\r\nredis_mode:{mode}\r\n".encode()
    replies: list[Reply] = [info]
    replies += [[name.encode(), value.encode()] for name, value in found.items()]
    return replies


def test_server_as_the_guide_has_it_is_right() -> None:
    """There is an answer to each question."""
    assert faults(settings_replies()) == []
    assert len(questions()) == len(settings_replies())


@pytest.mark.parametrize("version", ["6.2.14", "7.0.15", "7.2.0", "8.0.2"])
def test_server_must_sync_before_it_answers(version: str) -> None:
    """Also one that could be asked when it has: readers would see what is not on the disk yet."""
    assert faults(settings_replies(version)) == []
    assert [fault.split(",")[0] for fault in faults(settings_replies(version, appendfsync="everysec"))] == [
        'appendfsync is "everysec"'
    ]


def test_policy_that_removes_what_expires_removes_no_queue() -> None:
    """A cache beside the queues may make room."""
    assert faults(settings_replies(maxmemory_policy="volatile-lru")) == []


def test_server_must_not_be_in_cluster_mode() -> None:
    """A batch is one transaction, and its queues have a slot each."""
    assert [fault.split(",")[0] for fault in faults(settings_replies(mode="cluster"))] == ["it is in cluster mode"]
    assert faults(settings_replies(mode="sentinel")) == []


def test_everything_that_is_wrong_is_named() -> None:
    """At once, not one after the other."""
    found = faults(
        settings_replies(
            "5.0.3", appendonly="no", appendfsync="no", no_appendfsync_on_rewrite="yes", maxmemory_policy="allkeys-lfu"
        )
    )

    assert [fault.split(" ")[0] for fault in found] == [
        "it",
        "maxmemory-policy",
        "appendonly",
        "appendfsync",
        "no-appendfsync-on-rewrite",
    ]


def test_server_that_does_not_show_its_settings_is_not_trusted() -> None:
    """The right that is missing is named; a server that cannot answer now is another matter."""
    hidden = [settings_replies()[0], *[RedisRefusedError("Redis refused: NOPERM this user has no permissions")] * 4]
    assert "allow this user CONFIG GET and INFO" in faults(hidden)[0]
    assert "appendonly" in faults([settings_replies()[0], *[[]] * 4])[1]

    for replies in (
        [RedisUnavailableError("LOADING")] * 5,
        [settings_replies()[0], *[RedisUnavailableError("LOADING")] * 4],
    ):
        with pytest.raises(BackendError, match="LOADING"):
            faults(replies)
