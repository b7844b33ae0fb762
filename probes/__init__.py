"""Probes: how much a record would disturb training, measured by a forward and backward pass of a real model."""
