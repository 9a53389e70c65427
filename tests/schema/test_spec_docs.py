"""The manual of the language: current, complete, and with an example that works."""

from __future__ import annotations

import re
from pathlib import Path

from infra.load import load
from infra.schema.base import policy_of
from infra.schema.reference import EXAMPLE, markdown, parts

MANUAL = Path("docs/spec.md")


def rows() -> dict[str, dict[str, list[str]]]:
    """Section → field → its other cells."""
    found: dict[str, dict[str, list[str]]] = {}
    for section in re.split(r"^## ", markdown(), flags=re.M)[1:]:
        name, _, rest = section.partition("\n")
        lines = [line for line in rest.splitlines() if line.startswith("| `")]
        cells = [[cell.strip() for cell in re.split(r"(?<!\\\\)\|", line)[1:-1]] for line in lines]
        found[name] = {row[0].strip("`"): row[1:] for row in cells}
    return found


def test_the_manual_is_current() -> None:
    message = f"the language has changed since {MANUAL} was written; write it anew with: invoke docs"
    assert MANUAL.read_text(encoding="utf-8") == markdown(), message


def test_the_manual_holds_every_field_with_its_policy() -> None:
    found = rows()
    for part in parts():
        section = found[part.__name__]
        assert list(section) == list(part.model_fields)
        for field, cells in section.items():
            kind, _default, meaning, changed = cells
            assert kind
            assert meaning
            assert changed.startswith(policy_of(part, field).update), f"{part.__name__}.{field}"


def test_the_example_is_sound(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(EXAMPLE)
    loaded = load(file)
    assert loaded.problems == ()
    assert EXAMPLE in markdown()
