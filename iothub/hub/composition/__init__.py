"""Every part of a hub, made from its settings and put together."""
