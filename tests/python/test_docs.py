"""The documents name tests and files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def test_every_test_that_the_status_page_names_exists():
    names = re.findall(r"`([\w/]+\.(?:py|cpp))(?:::(\w+))?`", (ROOT / "docs/status.md").read_text())
    assert len(names) > 50
    for file, test in names:
        path = ROOT / file if "/" in file else ROOT / "tests/hf" / file
        assert path.is_file(), file
        if test:
            assert re.search(rf"^\s*def {test}\(", path.read_text(), re.MULTILINE), f"{file}::{test}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
        if not re.match(r"[a-z]+:", target):
            assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_make_targets_exist(document):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"`?\bmake ([a-z-]+)", document.read_text()):
        assert target in targets, target
