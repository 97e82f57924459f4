"""Where the ecosystem suites keep what they download, prepare and measure: everything below `build/ecosystem`, which git ignores."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "build" / "ecosystem"

PLUGINS = HERE / "plugins"
OWN_TESTS = HERE / "own"
COMMON_MODEL_TESTS = OWN_TESTS / "transformers_common"
EXPECTATIONS = HERE / "expectations.yaml"
REQUIREMENTS = HERE / "requirements.txt"
VISION_REQUIREMENTS = HERE / "requirements-vision.txt"
DOCUMENT = ROOT / "docs" / "ecosystem.md"

SOURCE_ARCHIVES = WORK / "archives"
SITE = WORK / "site"
VISION_SITE = WORK / "site-vision"
TREES = WORK / "trees"
HUB = WORK / "hub"
RESULTS = WORK / "results"
