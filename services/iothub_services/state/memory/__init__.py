"""Session states and checkpoints in memory: for tests."""
