"""All that is on disk: what it is, how it gets there, how it is read."""
