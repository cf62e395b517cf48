"""A Triton backend of the vendor Acme, whose device is that of the plugin `fake`: its compiler translates Triton IR to C,
and the plugin compiles the C. Triton finds the modules `compiler` and `driver` by the entry point."""
