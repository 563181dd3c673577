"""Deterministic, semantics-preserving transformations of NKI kernels, and the printer that gives them back as source."""
