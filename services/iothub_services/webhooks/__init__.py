"""Webhooks: events as signed HTTP requests, from a queue of each hub's own."""
