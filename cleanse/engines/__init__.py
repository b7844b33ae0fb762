"""Ways to run the same per-shard functions: worker processes on one machine, or a cluster."""
