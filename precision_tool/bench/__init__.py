"""The published benchmarks behind ``bench NAME``; each module has a ``run`` that answers with a Report."""
