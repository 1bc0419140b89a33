"""What writes the samples of each family; see ``make_samples.py``."""
