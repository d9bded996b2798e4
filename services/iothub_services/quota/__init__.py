"""Limits, token buckets, ledger, refusals."""
