"""Session states and checkpoints on HBase."""
