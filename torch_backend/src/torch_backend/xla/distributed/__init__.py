"""Loaders that copy samples in advance, one network on several devices by threads, and processes."""
