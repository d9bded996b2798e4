"""Session manager: transient and persistent sessions, expiry, wills."""
