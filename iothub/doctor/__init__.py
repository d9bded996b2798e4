"""`iothub doctor`: everything that a hub of this configuration needs, looked at with timing. Nothing here changes a store."""
