"""`xla_model`: devices, steps, and what processes and replicas exchange."""
