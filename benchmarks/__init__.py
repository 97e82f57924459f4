"""Benchmarks: ratios measured within one run, never absolute times across runs."""
