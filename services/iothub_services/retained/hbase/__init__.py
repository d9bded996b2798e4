"""Retained messages on HBase."""
