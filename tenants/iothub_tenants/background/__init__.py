"""What a hub does for its tenants without being asked by a client: start, changes of others, commands, regular upkeep."""
