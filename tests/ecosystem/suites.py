"""The suites: which test files each has, where they run, and what the quick mode keeps."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.ecosystem import paths, sources

# Files that say nothing about one device in one process: other accelerators, quantization libraries, trackers, several processes.
PEFT_LEFT_OUT = {
    "test_common_gpu": "CUDA and XPU only",
    "test_gpu_examples": "CUDA and XPU only",
    "test_gptqmodel": "needs the quantization library gptqmodel",
    "test_lora_megatron": "needs megatron and several processes",
    "test_hub_features": "tests the hub",
}
ACCELERATE_LEFT_OUT = {
    "test_multidevice": "several processes",
    "test_tpu": "TPU only",
    "test_fp8": "CUDA only",
    "test_sagemaker": "tests a cloud service",
    "test_quantization": "needs the quantization library bitsandbytes",
    "test_tracking": "experiment trackers: no device involved",
    "test_cli": "needs configuration files, which the source package does not hold; the scripts that it launches are a suite of their own",
    "test_examples": "needs the examples folder, which the source package does not hold",
    "test_imports": "measures import times in subprocesses: no device involved",
}
# Both skip themselves on the CPU, so there is nothing to compare, and take most of the time.
COMMON_MODEL_TESTS_LEFT_OUT = {
    "test_flex_attention_with_grads": "compiles with Inductor, which has no code generator for the device",
    "test_can_load_with_global_device_set": "starts a process of its own for every architecture; `tests/hf/test_loading.py` has the case",
}
ARCHITECTURES_PER_UNIT = 5
# Importing the libraries takes longer than most files. A crash costs one test, since the runner goes on behind it.
FILES_PER_UNIT = 8
# Files with thousands of tests, in parts that take some minutes each.
SHARDS = {
    "test_custom_models": 10,
    "test_decoder_models": 8,
    "test_encoder_decoder_models": 2,
    "test_feature_extraction_models": 2,
    "test_seq_classifier": 2,
}
# About what part of them one test per stratum is.
SELECTED_SHARE = 0.2
PEFT_QUICK = {"test_custom_models", "test_mixed", "test_lora_variants", "test_low_level_api", "test_vera"}
ACCELERATE_QUICK = {"test_accelerator", "test_data_loader", "test_modeling_utils", "test_scheduler"}


@dataclass(frozen=True)
class Unit:
    """One test file (or a part of it), run in one process per device.

    Attributes:
        name: part of the result file's name.
        arguments: what pytest gets.
        folder: working folder, which is also pytest's root: test ids are relative to it.
        sites: folders put before the environment's packages.
        environment: further variables.
        definition: files of this project that say what the unit tests.
        quick: whether the quick mode runs it.
    """

    name: str
    arguments: tuple[str, ...]
    folder: Path
    sites: tuple[Path, ...] = (paths.SITE,)
    environment: dict[str, str] = field(default_factory=dict)
    definition: tuple[Path, ...] = ()
    quick: bool = False


@dataclass(frozen=True)
class Suite:
    """A named group of units.

    `units` prepares what they need (downloads, trees) and lists them. Its argument is how many tests to select of each stratum of the files
    with thousands of tests (`plugins/ecosystem_selection.py`); 0 selects all. `own` suites hold this project's tests, which must pass on
    the CPU.
    """

    name: str
    title: str
    units: Callable[[int], list[Unit]]
    left_out: dict[str, str] = field(default_factory=dict)
    own: bool = False


def _foreign(package: str, left_out: dict[str, str], quick: set[str], per_stratum: int) -> list[Unit]:
    """Units of the tests in a source package: several small files in one process, files with thousands of tests in parts."""
    tree = sources.test_tree(package)
    files = [path.stem for path in sorted((tree / "tests").glob("test_*.py")) if path.stem not in left_out]
    units = []
    for kind in (True, False):
        small = [name for name in files if name not in SHARDS and (name in quick) == kind]
        for first in range(0, len(small), FILES_PER_UNIT):
            group = small[first : first + FILES_PER_UNIT]
            name = "+".join(part.removeprefix("test_") for part in group)
            units.append(Unit(name, tuple(f"tests/{part}.py" for part in group), tree, quick=kind))
    selection = {"ECOSYSTEM_PER_STRATUM": str(per_stratum)} if per_stratum else {}
    definition = (paths.PLUGINS / "ecosystem_selection.py",) if per_stratum else ()
    for name, most in SHARDS.items():
        shards = min(most, math.ceil(most * SELECTED_SHARE * per_stratum)) if per_stratum else most
        for shard in range(shards if name in files else 0):
            environment = {"ECOSYSTEM_SHARD": f"{shard}/{shards}", **selection}
            part = f"{name.removeprefix('test_')}-{shard + 1}of{shards}"
            quickly = name in quick and shard == 0
            units.append(Unit(part, (f"tests/{name}.py",), tree, environment=environment, definition=definition, quick=quickly))
    return units


def _own(*names: str, sites: tuple[Path, ...] = (paths.SITE,), quick: bool = True) -> list[Unit]:
    """Units of this project's own files below `own/`, which no other pytest run collects."""
    settings = ("-c", "foreign.ini", "--rootdir=.")
    files = {name: paths.OWN_TESTS / f"{name}.py" for name in names}
    return [Unit(name, (*settings, f"own/{name}.py"), paths.HERE, sites, definition=(file,), quick=quick) for name, file in files.items()]


def _peft(per_stratum: int) -> list[Unit]:
    sources.hub_stand_ins()
    return _foreign("peft", PEFT_LEFT_OUT, PEFT_QUICK, per_stratum)


def _accelerate(per_stratum: int) -> list[Unit]:
    return _foreign("accelerate", ACCELERATE_LEFT_OUT, ACCELERATE_QUICK, per_stratum)


def _transformers(_: int) -> list[Unit]:
    """Units of a few architectures each: importing transformers takes longer than testing a small model."""
    tree = sources.test_tree("transformers")
    for stand_in, missing in (("exporters_mixin.py", "exporters/test_export.py"), ("generation_mixin.py", "generation/test_utils.py")):
        (tree / "tests" / missing).parent.mkdir(exist_ok=True)
        (tree / "tests" / missing).with_name("__init__.py").touch()
        shutil.copy(paths.COMMON_MODEL_TESTS / "missing" / stand_in, tree / "tests" / missing)
    text = (paths.COMMON_MODEL_TESTS / "architectures.py").read_text(encoding="utf-8")
    names = re.findall(r'^    "(\w+)": _', text, flags=re.M)
    definition = tuple(sorted(paths.COMMON_MODEL_TESTS.rglob("*.py")))
    units = []
    for first in range(0, len(names), ARCHITECTURES_PER_UNIT):
        group = names[first : first + ARCHITECTURES_PER_UNIT]
        environment = {"ECOSYSTEM_ARCHITECTURES": ",".join(group)}
        # The file is copied beside the tests, because ids of tests are relative to the folder.
        shutil.copy(paths.COMMON_MODEL_TESTS / "model_tests.py", tree / "model_tests.py")
        sites = (tree, paths.COMMON_MODEL_TESTS, paths.SITE)
        arguments = ("model_tests.py", "-k", " and ".join(f"not {test}" for test in COMMON_MODEL_TESTS_LEFT_OUT))
        units.append(Unit("-".join(group), arguments, tree, sites, environment, definition, quick=first == 0))
    return units


def _timm(_: int) -> list[Unit]:
    sources.install_requirements(paths.VISION_REQUIREMENTS, paths.VISION_SITE)
    return _own("timm_models", sites=(paths.VISION_SITE, paths.SITE))


SUITES = {
    suite.name: suite
    for suite in (
        Suite("accelerate", "tests of accelerate's source package", _accelerate, ACCELERATE_LEFT_OUT),
        Suite("accelerate-scripts", "`accelerate/test_utils/scripts`, one process", lambda _: _own("accelerate_scripts"), own=True),
        Suite("peft", "tests of peft's source package", _peft, PEFT_LEFT_OUT),
        Suite("transformers", "common model tests of transformers' source package", _transformers, COMMON_MODEL_TESTS_LEFT_OUT),
        Suite("timm", "timm: forward, backward and training steps against the CPU", _timm, own=True),
        Suite("diffusers", "diffusers: UNet and DiT pipelines from configurations", lambda _: _own("diffusers_pipelines"), own=True),
        Suite(
            "sentence-transformers", "sentence-transformers: encoding, similarity, fitting", lambda _: _own("sentence_vectors"), own=True
        ),
    )
}
