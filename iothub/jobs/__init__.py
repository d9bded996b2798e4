"""How jobs are run: one at a time, in a process of their own, watched to its end and remembered. Spark itself is never loaded here."""
