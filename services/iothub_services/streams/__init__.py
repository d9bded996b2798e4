"""Streams: a tenant's matching messages go to a topic of Kafka, and an application's records to devices."""
