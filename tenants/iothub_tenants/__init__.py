"""The tenants: names, accounts, one broker each, the packet handlers of the control plane, and the hub's background tasks for them.

Imports go one way: `background`, `control`, `broker`, `accounts`, `identity`.
"""
