"""Differential fuzzing of the device against the CPU: random programs of operators, views, writes and autograd."""
