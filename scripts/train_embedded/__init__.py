"""Trains the small decoder that ships as the probe's default model."""
