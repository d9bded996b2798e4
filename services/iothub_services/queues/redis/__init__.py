"""The queue driver `redis`: virtual queues in one Redis, each changed by one Lua script at a time."""
