"""Loaders that copy ahead, one network on several devices by threads, and processes."""
