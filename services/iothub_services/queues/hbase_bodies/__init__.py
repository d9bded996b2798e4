"""The bodies in HBase that nothing refers to any more: whose turn it is to look for them, what is referred to, and the sweep itself."""
