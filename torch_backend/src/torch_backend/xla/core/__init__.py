"""`xla_model`: devices, steps, and exchange between processes and replicas."""
