"""Who the tenants are: names, accounts, one broker each, the walks of their clients, and the hub's duties towards them.

Imports go one way: `background`, `control`, `broker`, `accounts`, `identity`.
"""
