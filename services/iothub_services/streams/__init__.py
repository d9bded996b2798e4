"""Streams: matching messages of a tenant to a topic of Kafka, and an application's records to devices."""
