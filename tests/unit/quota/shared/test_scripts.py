"""The ledger's scripts, one by one, and their twins: who may speak, and what is answered."""

from __future__ import annotations

from iothub_services.quota.names import Quota
from iothub_services.quota.shared import scripts
from iothub_services.quota.shared.keys import Keys, count_name
from iothub_services.quota.usage import UsageKey
from iothub_services.redis.calls import Reply
from tests.support.in_process.ledgers import Ledger

KEYS = Keys(lambda: "iothub:x:")
HUB = [KEYS.hubs, KEYS.state]
LEASE = scripts.LEASE_MS


def entered(redis: Ledger, name: str = "a.1") -> None:
    redis.eval(scripts.ENTER, 2, *HUB, name, 0, LEASE, scripts.SETTLE_MS, 0)
    redis.now_us += scripts.SETTLE_MS * 1000


def turn(redis: Ledger, number: int, name: str = "a.1") -> Reply:
    return redis.eval(scripts.TURN, 3, *HUB, KEYS.wanted, name, number, LEASE, scripts.WANTED_MS)


def test_keys_have_one_hash_tag_and_say_what_they_are() -> None:
    """A cluster of Redis keeps them together; a person finds them."""
    assert KEYS.count(count_name(7, Quota.CONNECTS, 1)) == "iothub:x:{quota}:c:7:connects/1"
    assert KEYS.rate(count_name(7, Quota.PUBLISH_BYTES, 1)) == "iothub:x:{quota}:r:7:publish_bytes/1"
    day = UsageKey(7, "dev1", "publish_messages", 86_400)
    assert KEYS.window(day, 1_800_000_000) == "iothub:x:{quota}:w:7:publish_messages/86400@1800000000:dev1"


def test_only_the_next_number_of_a_hub_with_a_lease_is_heard(redis: Ledger) -> None:
    """Everything else is lapsed: emptied, lost in a fail-over, too late, never entered."""
    assert turn(redis, 1) == [scripts.LAPSED]
    entered(redis)
    assert turn(redis, 1) == [0, 1]
    assert turn(redis, 2) == [0, 1]
    assert turn(redis, 1, "b.1") == [scripts.LAPSED]
    entered(redis, "b.1")
    assert turn(redis, 2, "b.1") == [scripts.LAPSED]  # a number is missing: everybody has time to declare
    assert turn(redis, 3) == [scripts.SETTLE_MS, 1]
    assert turn(redis, 1, "b.1") == [scripts.LAPSED]
    redis.flush()
    assert turn(redis, 4) == [scripts.LAPSED]


def test_lease_ends_where_others_were_there_meanwhile(redis: Ledger) -> None:
    """And its place in the list goes later; a hub that leaves goes at once."""
    entered(redis)
    entered(redis, "b.1")
    for number in range(1, 24):
        redis.now_us += 1_000_000
        assert isinstance(turn(redis, number, "b.1"), list)
    assert turn(redis, 1) == [scripts.LAPSED]
    assert redis.names(KEYS.hubs) == ["b.1"]
    redis.eval(scripts.LEAVE, 2, *HUB, "b.1", 0, LEASE)
    assert redis.names(KEYS.hubs) == []


def test_lease_that_ended_before_a_silence_of_all_has_ended(redis: Ledger) -> None:
    """What was held under it may have been granted to others: it does not begin anew with those of the others."""
    entered(redis)
    entered(redis, "b.1")
    for number in range(1, 13):
        redis.now_us += 1_000_000
        turn(redis, number, "b.1")
    redis.now_us += (scripts.GAP_MS + 500) * 1000

    assert turn(redis, 13, "b.1") == [0, 1]
    assert turn(redis, 1) == [scripts.LAPSED]


def test_clock_that_is_set_back_keeps_nobody_waiting(redis: Ledger) -> None:
    """Leases begin anew, one that has ended does not; hubs have as long to declare as ever."""
    entered(redis, "gone.1")
    entered(redis)
    for number in range(1, 14):
        redis.now_us += 1_000_000
        turn(redis, number)
    redis.eval(scripts.ENTER, 2, *HUB, "b.1", 0, LEASE, scripts.SETTLE_MS, 1)
    redis.now_us -= 3_600_000_000
    assert turn(redis, 14) == [scripts.SETTLE_MS, 2]
    assert turn(redis, 1, "gone.1") == [scripts.LAPSED]
    for number in range(15, 26):
        redis.now_us += 1_000_000
        turn(redis, number)

    assert turn(redis, 26) == [0, 1]


def test_old_names_of_a_data_directory_are_let_go_together(redis: Ledger) -> None:
    """Not those of others whose name begins alike."""
    for name in ("1-ab.1", "1-ab.2", "1-abc.1", "1-ab.3"):
        entered(redis, name)
    gone = redis.eval(scripts.CLAIM, 2, *HUB, "1-ab.3", 1, LEASE, "1-ab.")

    assert gone == 2
    assert set(redis.names(KEYS.hubs)) == {"1-ab.3", "1-abc.1"}
