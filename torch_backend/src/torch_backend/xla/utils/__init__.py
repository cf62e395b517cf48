"""Helpers, and saving with one tensor at a time in the host's memory."""
