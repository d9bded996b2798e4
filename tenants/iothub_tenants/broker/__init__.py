"""One tenant's own broker, what it is composed of, and the hub's services that all of them share."""
