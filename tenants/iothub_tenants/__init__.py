"""Who the tenants are: tables, registry, plans, identity, unique ids, and one tenant's own broker."""
