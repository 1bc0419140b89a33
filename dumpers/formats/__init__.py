"""Readers and writers, one module a format; ``registry`` picks the one that fits."""
