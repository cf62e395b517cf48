"""Serialization of large models: serialization."""
