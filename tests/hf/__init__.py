"""Tests of unmodified Hugging Face libraries on the `neuron` device."""
