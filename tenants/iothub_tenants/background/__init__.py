"""What a hub does for its tenants without a client's request: session recovery, account changes, admin requests, periodic tasks."""
