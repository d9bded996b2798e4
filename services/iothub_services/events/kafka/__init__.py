"""The session-event log on Kafka."""
