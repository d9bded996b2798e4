"""In-process services, each a port plus its drivers."""
