"""The journal in front of the tables of the embedded queues: records, and the files they are in."""
