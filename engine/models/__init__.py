"""Reference models on the engine: samples to read, and subjects under test."""
