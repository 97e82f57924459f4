"""Stress and fault tests of the device: many threads, processes, full disks, signals, exits, and a soak. `make stress` runs all of them."""
