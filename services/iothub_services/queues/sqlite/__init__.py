"""Virtual queues in a SQLite file."""
