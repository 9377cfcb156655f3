"""One-line faults in the code, and the tests that should notice them; see benchmarks/mutants.py."""
