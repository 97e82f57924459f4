"""Operator generator: turns `src/torch/ops/table.yaml` and the installed torch wheel into operator registrations.

Build time only; imports torchgen (pure Python) from the wheel, never torch itself.
"""
