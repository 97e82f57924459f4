# Everything a newcomer needs: `make demo` and `make test`. `make help` lists the rest.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
MODEL ?=
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
export PATH := $(BIN):$(PATH)
export HF_HUB_DISABLE_TELEMETRY := 1

.DEFAULT_GOAL := help
.PHONY: help setup build demo check test test-cpp test-conformance test-python conformance distributed ecosystem fuzz stress lint format sanitize sanitize-plugin bench bench-peers docs clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(VENV)/.installed: requirements.txt
	@echo "== installing pinned dependencies into .venv"
	@tools/system-packages
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==$$(sed -n 's/^torch==//p' requirements.txt)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

setup: $(VENV)/.installed ## make .venv with pinned dependencies

build/build.ninja: $(VENV)/.installed
	TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(BIN)/cmake -S . -B build -G Ninja -DPython_EXECUTABLE=$(BIN)/python -DNEURON_INPLACE=ON -DNEURON_BUILD_TESTS=ON

# ninja shows its progress; pip then finds everything built and only registers the package (its name, entry points and folder) with .venv.
build: build/build.ninja ## build the plugin and the C++ tests
	@$(BIN)/cmake --build build
	@$(MAKE) --no-print-directory build/.registered

build/.registered: build/build.ninja pyproject.toml
	TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
	  --config-settings=cmake.define.NEURON_BUILD_TESTS=ON -e .
	@touch $@

demo: build ## the page's generation example; MODEL=<hub name or folder> picks a model
	$(BIN)/python examples/generate.py $(if $(MODEL),--model "$(MODEL)")

test: lint test-cpp test-conformance test-python ## lint, C++ tests, the quick tier of the conformance suite, Python tests

check: build ## the quick gate while editing (below three minutes): formatting, types, C++ tests, operators, memory, compiled graphs
	@tools/lint --quick
	$(BIN)/ctest --test-dir build --output-on-failure -j2
	$(BIN)/python -m pytest -q -x $(addprefix tests/python/test_,operators.py ops_layouts.py ops_aliases.py device_memory.py compile_graphs.py)

test-cpp: build ## C++ tests (ctest)
	$(BIN)/ctest --test-dir build --output-on-failure -j2

# Tests of one process share the two cores; those of several ranks have them alone.
test-python: build ## Python tests (pytest)
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -m "not extra" -q --durations=15 --ignore=tests/distributed -n 2 --dist loadfile
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest tests/distributed -m "not extra" -q --durations=15

test-conformance: build ## the quick tier of the conformance suite (about five minutes)
	$(BIN)/python -m tests.conformance --tier quick --fresh

conformance: build ## PyTorch's operator, module and optimizer databases, everything; resumable; writes docs/conformance.md
	$(BIN)/python -m tests.conformance --tier full
	$(BIN)/python -m tests.conformance --report
	@$(MAKE) --no-print-directory docs

distributed: build ## process groups, every parallel form of training and generation on several ranks, faults
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest tests/distributed -q --durations=15

ecosystem: build ## the test suites of accelerate, peft, transformers and others, CPU against neuron; writes docs/ecosystem.md
	HF_HUB_OFFLINE=1 $(BIN)/python -m tests.ecosystem run

fuzz: build ## 20,000 random programs, neuron against the CPU
	$(BIN)/python -m tests.fuzz --programs 20000 --compile-share 0.05

stress: build ## threads, processes, faults, signals, exit, and a soak of 30 minutes
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest tests/stress -q --durations=15

lint: build ## clang-format, clang-tidy, ruff, mypy
	@tools/lint

format: setup ## rewrite sources with clang-format and ruff
	@tools/lint --fix

sanitize: setup ## torch-free layers under ASan+UBSan and TSan
	@for kind in address,undefined thread; do \
	  tree=build-sanitize-$${kind%%,*}; \
	  $(BIN)/cmake -S . -B $$tree -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DNEURON_BUILD_PLUGIN=OFF -DNEURON_BUILD_TESTS=ON -DNEURON_SANITIZE=$$kind \
	    && $(BIN)/cmake --build $$tree && $(BIN)/ctest --test-dir $$tree --output-on-failure -j2 || exit 1; \
	done

sanitize-plugin: setup ## the plugin under ASan and UBSan: tests/python (a build of its own, some minutes)
	tests/sanitize/run $(TESTS)

bench: build ## the benchmarks of benchmarks/, as ratios with their bars
	$(BIN)/python -m benchmarks

bench-peers: build ## other engines on this CPU beside `neuron` (installs OpenVINO into build/peers)
	test -d build/peers || $(BIN)/python -m pip install --quiet --disable-pip-version-check --target build/peers openvino==2026.4.1
	$(BIN)/python -m benchmarks peers

docs: setup ## regenerate docs/operators.md and the operator digest that a test compares
	TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(BIN)/python tools/opgen/generate.py --table src/torch/ops/table.yaml --docs docs/operators.md --digest tools/opgen/expected_ops.txt

clean: ## remove build trees and built files (keeps .venv)
	rm -rf build build-* python/torch_neuronx/*.so python/torch_neuronx/_build_info.py
