"""Quotas that several hubs share: counts granted, rates leased and calendar windows added up, through Redis."""
