"""The embedded stores in a process of their own, and the drivers with which the workers of one data directory use them."""
