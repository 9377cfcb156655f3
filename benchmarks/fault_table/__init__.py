"""The rows of `benchmarks/faults.py`, and the negative controls that show that each of them can fail."""
