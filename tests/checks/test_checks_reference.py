"""The reference of checks: of every code, and kept current."""

from __future__ import annotations

import re
from pathlib import Path

from infra.checks import CHECKS, FAMILIES
from infra.checks.reference import markdown

ROOT = Path(__file__).parents[2]


def test_the_page_in_docs_is_current() -> None:
    assert (ROOT / "docs" / "checks.md").read_text(encoding="utf-8") == markdown()


def test_every_code_stands_there_once_with_its_line() -> None:
    rows = re.findall(r"^\| ([A-Z0-9]+) \|.*\| (.*) \|$", markdown(), re.MULTILINE)
    assert sorted(rows) == sorted((code, check.doc) for code, check in CHECKS.items())


def test_every_family_has_a_code() -> None:
    assert {check.family for check in CHECKS.values()} == set(FAMILIES)


def test_every_code_that_is_raised_elsewhere_is_declared() -> None:
    raised = {
        code
        for file in (ROOT / "infra").rglob("*.py")
        for code in re.findall(r'"((?:SPEC|NET|LOCK|NUM|UPD)\d{3})"', file.read_text(encoding="utf-8"))
    }
    assert {"SPEC001", "NET031", "LOCK001"} <= raised
    assert raised <= set(CHECKS)
