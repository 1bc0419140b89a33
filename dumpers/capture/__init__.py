"""Hooks of a training process: Python 3.7 and TensorFlow 1.15 names, NumPy, nothing else."""
