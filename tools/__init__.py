"""What agents use on kernels: evaluation, the simulator, rewrites. No language model in here."""
