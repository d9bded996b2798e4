"""Links between the hubs of one installation: what travels over them, who is linked to whom, and the connections that carry it."""
