"""Membership, links between workers and nodes, routes, session directory; in-process versions for one worker."""
