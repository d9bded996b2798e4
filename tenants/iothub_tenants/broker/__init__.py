"""One tenant's broker, its parts, and the services of the hub that all brokers share."""
