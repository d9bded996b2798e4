"""Retained messages."""
