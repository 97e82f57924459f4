"""Conformance: what PyTorch's own databases know of operators, modules and optimizers holds on `neuron` as it does on the CPU.

`python -m tests.conformance` runs everything, sharded and resumable; `pytest tests/conformance` a tier of about ten minutes.

| file | what it is |
|---|---|
| `case.py` | a case: template x subject x dtype; the registry of templates |
| `templates/` | one file for each statement that is checked |
| `samples.py` | samples of the databases, and copies of them on a device, storage for storage |
| `compare.py` | what "the same as on the CPU" means for results, errors and warnings |
| `expectations.yaml` | cases that are known not to hold, each with its reason; an unexpected pass fails |
| `results.py`, `report.py` | outcomes on disk (resume), and `docs/conformance.md` made from them |
"""
