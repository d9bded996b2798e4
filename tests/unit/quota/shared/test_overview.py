"""What who only looks hears of the ledger."""

from __future__ import annotations

from iothub_services.quota.shared.keys import Keys
from iothub_services.quota.shared.overview import Overview, questions, read
from iothub_services.redis.calls import Reply
from tests.support.in_process.shared_quota import SCOPE, HubHalf, World, turns
from tests.support.servers.lua_redis import LuaRedis


def look(world: World) -> Overview:
    """Take the answers from what the scripts have kept."""
    keys = Keys(lambda: SCOPE)
    redis = world.ledger
    assert isinstance(redis, LuaRedis)
    kept = redis.keys
    leases = [part for pair in kept.get(keys.hubs.encode(), {}).items() for part in pair]
    now: list[Reply] = [b"%d" % int(world.now), b"0"]
    return read([now, leases, kept.get(keys.state.encode(), {}).get(b"settled")])


def test_hubs_with_a_lease_are_counted_by_their_data_directories() -> None:
    """One that was killed holds its lease beside its successor's for a while; nobody was there before the first."""
    world = World()
    assert look(world).is_empty
    hubs = [HubHalf(world, "1-a"), HubHalf(world, "2-b")]
    turns(world, *hubs, seconds=1.0)
    assert look(world).initialising_ms > 0
    turns(world, *hubs, seconds=4.0)
    assert (look(world).places, look(world).initialising_ms) == (frozenset({"1-a", "2-b"}), 0)
    turns(world, hubs[0], seconds=12.0)

    assert look(world).places == {"1-a"}


def test_only_reading_commands_are_asked() -> None:
    """A tool changes nothing."""
    assert {call.arguments[0] for call in questions(Keys(lambda: SCOPE))} == {"TIME", "HGETALL", "HGET"}
