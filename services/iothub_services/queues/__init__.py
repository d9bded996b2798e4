"""Virtual queues: the writer and its drivers."""
