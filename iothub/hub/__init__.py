"""The hub process: put together, started, watched and stopped."""
