"""Session states and checkpoints in a SQLite file."""
