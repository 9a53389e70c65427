"""The generated parts of the documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from infra.commands.terminal import say


def schema() -> int:
    """Print the JSON Schema of a spec."""
    say(_schema())
    return 0


def texts() -> Mapping[Path, str]:
    """Path → text of every generated file."""
    from infra.checks.reference import markdown as checks
    from infra.spec.reference import markdown as language

    return {
        Path("docs/spec.md"): language(),
        Path("docs/checks.md"): checks(),
        Path("environments/spec.schema.json"): f"{_schema()}\n",
    }


def write(files: Mapping[Path, str]) -> int:
    """Write those that are not as they should be. ``files``: path → text."""
    for path, text in files.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            say(f"wrote {path}")
    return 0


def _schema() -> str:
    from infra.spec.reference import json_schema

    return json.dumps(json_schema(), indent=2, ensure_ascii=False)
