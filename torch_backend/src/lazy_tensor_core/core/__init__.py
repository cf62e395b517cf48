"""The model API: lazy_model."""
