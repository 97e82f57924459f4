"""What recorded outcomes belong to: the build, the selection and the versions. Outcomes of another state are measured again, not merged."""

from __future__ import annotations

import datetime
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.ecosystem import paths
from tests.ecosystem.suites import Unit

LIBRARIES = ("torch", "transformers", "accelerate", "peft", "tokenizers", "safetensors", "numpy", "pytest")
PLUGIN = "torch_neuronx"


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:10]


def _plugin_folder() -> Path:
    specification = importlib.util.find_spec(PLUGIN)
    assert specification is not None and specification.origin is not None, f"{PLUGIN} is not installed"
    return Path(specification.origin).parent


@functools.cache
def build_digest() -> str:
    """A digest of the plugin as it is installed."""
    package = _plugin_folder()
    return _digest([*package.rglob("*.py"), *package.glob("*.so")])


@functools.cache
def commit() -> str:
    """The commit of the plugin's sources, with a plus sign where they were edited since; `unknown` outside a repository."""
    folder = str(_plugin_folder())
    git = ["git", "-C", folder]
    head = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain", "--", ":/src", ":/python"], capture_output=True, text=True, check=False).stdout
    return f"{head}{'+' if changed.strip() else ''}" if head else "unknown"


@functools.cache
def _environment_digest() -> str:
    """Versions of everything that takes part in every suite."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES]
    models = (paths.HERE / "stand_ins.py", paths.COMMON_MODEL_TESTS / "architectures.py")
    files = _digest([paths.REQUIREMENTS, paths.VISION_REQUIREMENTS, *models])
    return hashlib.sha256("\n".join([sys.version, *versions, files]).encode()).hexdigest()[:10]


def key_of(unit: Unit) -> str:
    """Changes with everything but the plugin that outcomes of the unit depend on: its tests, their selection, and the versions."""
    parts = [_environment_digest(), *unit.arguments, *(f"{name}={value}" for name, value in sorted(unit.environment.items()))]
    parts.append(_digest(unit.definition))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class State:
    """What is known of one unit on one device: what was measured (`key`), with which build of the plugin (none on the CPU), and when."""

    key: str
    build: str
    commit: str
    day: str
    finished: bool = False

    @classmethod
    def now(cls, unit: Unit, device: str) -> State:
        """The state of a measurement that begins now."""
        day = datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()
        return cls(key_of(unit), "" if device == "cpu" else build_digest(), commit(), day)

    def continues(self, earlier: State | None, *, any_build: bool = False) -> bool:
        """Whether outcomes of an earlier measurement hold for this one."""
        return earlier is not None and earlier.key == self.key and (any_build or earlier.build == self.build)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")


def read_state(path: Path) -> State | None:
    """The state in a file, None if there is none."""
    return State(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None
