"""Terraform's diagnostics in words."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from infra.drive import diagnostics
from infra.drive.diagnostics import Diagnostic

FOLDER = PurePath("build/lab/terraform")

LOCKED = {
    "severity": "error",
    "summary": "Error acquiring the state lock",
    "detail": "Error message: resource temporarily unavailable\n"
    "Lock Info:\n  ID:        7f3a\n  Path:      x\n"
    "  Operation: OperationTypeApply\n  Who:       ada@desk\n  Version:   1.11.4\n"
    "  Created:   2026-11-21 06:00:00 UTC\n  Info:      \n",
}


def error(summary: str, detail: str = "") -> Diagnostic:
    return diagnostics.parse({"severity": "error", "summary": summary, "detail": detail})


def test_place_comes_first_and_detail_below() -> None:
    diagnostic = diagnostics.parse(
        {
            "severity": "error",
            "summary": "Invalid CIDR",
            "detail": "first\n\nsecond",
            "address": "module.a.aws_subnet.b",
            "range": {"filename": "modules/network/main.tf", "start": {"line": 7}},
        }
    )
    first, *details = diagnostics.readable(diagnostic, FOLDER).splitlines()
    assert first.startswith("build/lab/terraform/modules/network/main.tf:7: module.a.aws_subnet.b: ")
    assert details == ["  first", "", "  second"]


def test_a_state_lock_names_who_and_since_when_and_how_to_end_it() -> None:
    said = diagnostics.readable(diagnostics.parse(LOCKED), FOLDER)
    assert {"ada@desk", "(OperationTypeApply,", "2026-11-21"} <= set(said.split())
    assert "TF_DATA_DIR=../state/.terraform terraform -chdir=build/lab/terraform force-unlock 7f3a" in said


def test_each_thing_is_said_once() -> None:
    same = [error("a"), error("b"), error("a")]
    assert diagnostics.distinct(same) == [error("a"), error("b")]


@pytest.mark.parametrize(
    "diagnostic",
    [
        error("Module not installed", 'Run "terraform init" to install all modules.'),
        error('Backend initialization required, please run "terraform init"'),
        error("Required plugins are not installed", "run:\n  terraform init"),
        error("Required plugins are not installed", "run:\n  tofu init"),
    ],
)
def test_what_init_mends(diagnostic: Diagnostic) -> None:
    assert diagnostics.is_init_needed(diagnostic)
    assert not diagnostics.is_init_needed(error("Invalid CIDR"))


def test_guarded_things_are_named_once() -> None:
    detail = "Resource module.a.aws_eip.b has lifecycle.prevent_destroy set, but the plan calls …"
    diagnostic = [
        error("Instance cannot be destroyed", detail),
        error("Instance cannot be destroyed", detail),
    ]
    assert diagnostics.prevented(diagnostic) == ("module.a.aws_eip.b",)


def test_credentials_lead_to_the_doctor() -> None:
    said = diagnostics.advise(error("No valid credential sources found"), FOLDER)
    assert "invoke doctor" in said


def test_what_is_said_of_many_resources_is_read_once() -> None:
    def absent(name: str) -> Diagnostic:
        address = f"module.eu.aws_subnet.{name}"
        said = {"summary": "Provider configuration not present", "detail": f"To work with {address} …"}
        return diagnostics.parse({"severity": "error", "address": address, **said})

    [text, other] = diagnostics.grouped([*map(absent, "abcdefgh"), error("Invalid CIDR")], FOLDER)
    assert len(text.splitlines()) == 3
    assert "module.eu.aws_subnet.a" in text
    others = ", ".join([*(f"module.eu.aws_subnet.{name}" for name in "bcdef"), "2 more"])
    assert text.splitlines()[-1].endswith(f": {others}")
    assert other == "Invalid CIDR"
