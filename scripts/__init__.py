"""Scripts that make what the repository ships: tables, samples, the embedded model."""
