"""Sparse optimizers: each updates the rows of a batch only."""
