"""Counters and measurements of lazy work, and their analysis."""
