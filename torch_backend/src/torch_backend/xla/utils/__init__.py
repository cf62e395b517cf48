"""Helpers, and saving with only one tensor at a time in host memory."""
