"""Transports: listeners, the reactor adapter of the poller, TLS, WebSocket and PROXY as byte filters, health and metrics over HTTP."""
