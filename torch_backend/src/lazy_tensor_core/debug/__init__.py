"""Counters: metrics."""
