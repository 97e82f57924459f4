"""Brings the source packages and extra libraries onto this machine: by pinned version through pip, once, below `build/ecosystem`."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.ecosystem import paths

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def installed_version(package: str) -> str:
    """Version of `package` in the running environment: its tests are taken from the source package of the same version."""
    return importlib.metadata.version(package)


def install_requirements(requirements: Path, target: Path) -> None:
    """Install a requirements file into a folder of its own, without dependencies, so that nothing in the environment changes."""
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    stamp = target / ".installed"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
        return
    print(f"== installing {requirements.name}", flush=True)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    subprocess.run([*PIP, "install", "--no-deps", "--target", str(target), "-r", str(requirements)], check=True)
    stamp.write_text(digest, encoding="utf-8")


def source_archive(package: str) -> Path:
    """Source package of the installed version of `package`."""
    version = installed_version(package)
    paths.SOURCE_ARCHIVES.mkdir(parents=True, exist_ok=True)
    archive = paths.SOURCE_ARCHIVES / f"{package}-{version}.tar.gz"
    if not archive.exists():
        print(f"== downloading the source package of {package} {version}", flush=True)
        only_source = ["download", "--no-deps", "--no-binary", package, "--dest", str(paths.SOURCE_ARCHIVES)]
        subprocess.run([*PIP, *only_source, f"{package}=={version}"], check=True)
    return archive


def test_tree(package: str) -> Path:
    """Folder that holds `tests/` of the source package, unpacked anew when the version changes.

    The folder has nothing else of the package, so that the tests import the installed library.
    """
    archive = source_archive(package)
    tree = paths.TREES / archive.name.removesuffix(".tar.gz")
    if (tree / ".complete").exists():
        return tree
    shutil.rmtree(tree, ignore_errors=True)
    with tarfile.open(archive) as file:
        prefix = f"{tree.name}/tests/"
        members = [member for member in file.getmembers() if member.name.startswith(prefix)]
        for member in members:
            member.name = member.name.removeprefix(f"{tree.name}/")
        file.extractall(tree, members=members, filter="data")
    # The package marker is not in the archives, but the tests import each other relatively. Tests that start pytest anew find the settings.
    (tree / "tests" / "__init__.py").touch()
    shutil.copy(paths.HERE / "foreign.ini", tree / "pytest.ini")
    for path in sorted((tree / "tests").rglob("*.py")):
        _ask_run_device(path)
        _stay_offline(path)
    (tree / ".complete").touch()
    return tree


def hub_stand_ins() -> None:
    """Fill the suites' hub cache with small random models under the names that tests ask for."""
    script = paths.HERE / "stand_ins.py"
    digest = hashlib.sha256(script.read_bytes() + (paths.COMMON_MODEL_TESTS / "architectures.py").read_bytes()).hexdigest()
    stamp = paths.HUB / ".made"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
        return
    print("== making small random models", flush=True)
    variables = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, "-m", "tests.ecosystem.stand_ins", str(paths.HUB)], check=True, cwd=paths.ROOT, env=variables)
    stamp.write_text(digest, encoding="utf-8")


def _stay_offline(path: Path) -> None:
    """Let peft's test helper, which turns the hub on at a model's first use, leave it off: each attempt would take a minute to fail."""
    text = path.read_text(encoding="utf-8")
    switch = 'is_offline = override.get("HF_HUB_OFFLINE", False) == "1"'
    if switch in text:
        path.write_text(text.replace(switch, "is_offline = True"), encoding="utf-8")


def _ask_run_device(path: Path) -> None:
    """Let a test file that asks peft's `infer_device()` use the device of the run.

    That function knows a fixed list of devices and would answer `cpu`. The library itself stays as it is.
    """
    text = path.read_text(encoding="utf-8")
    if "infer_device()" not in text:
        return
    text = text.replace("infer_device()", "run_device()")
    path.write_text(
        re.sub(r"^(?=(import|from) (?!__future__))", "from ecosystem_device import run_device\n", text, count=1, flags=re.M),
        encoding="utf-8",
    )
