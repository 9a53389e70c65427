"""The smallest shipped spec through a whole life, as a person drives it: real Terraform and its provider, the
embedded AWS. What larger ones add is in `tests/test_shipped_specs.py`."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.lifecycle.project import Project


def test_applied_it_has_no_changes_and_destroyed_it_is_gone(tmp_path: Path) -> None:
    project = Project.copied(tmp_path, "minimal")
    try:
        project.invoke("apply", "--yes")
        assert any(project.inventory().values())
        plan = json.loads(project.invoke("plan", "--json", "--detailed-exitcode"))
        assert (plan["changes"], plan["undeclared"]) == ([], [])
        project.invoke("destroy", "--confirm", "minimal")
        assert not any(project.inventory().values())
    finally:
        project.run("local.down")
