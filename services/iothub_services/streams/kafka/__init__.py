"""Streams on Kafka."""
