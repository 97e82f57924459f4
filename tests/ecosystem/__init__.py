"""Tests that other projects ship, and models of further libraries, run on the CPU and on `neuron` and compared test by test."""
