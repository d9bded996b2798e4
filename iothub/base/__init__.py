"""What everything stands on: errors, names of reasons, clock, ids, units, log. Imports nothing of the project outside itself."""
