"""The generated parts of the documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from infra.commands.terminal import say


def schema_text() -> str:
    """The JSON Schema of a spec."""
    from infra.schema.reference import json_schema

    return f"{json.dumps(json_schema(), indent=2, ensure_ascii=False)}\n"


def schema() -> int:
    """Print the JSON Schema of a spec."""
    say(schema_text().rstrip("\n"))
    return 0


def texts() -> Mapping[Path, str]:
    """Path → text of every generated file."""
    from infra.checks.reference import markdown as checks
    from infra.render import iam
    from infra.schema.reference import markdown as language

    return {
        Path("docs/spec.md"): language(),
        Path("docs/checks.md"): checks(),
        **{
            Path("docs/iam") / name: text
            for name, text in iam.texts(iam.render(iam.EXAMPLE, iam.PARTS)).items()
        },
    }


def update(path: Path, text: str) -> bool:
    """Write a file if it has changed, atomically; returns whether it was written."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
    return True


def write(files: Mapping[Path, str]) -> int:
    """Write the files that have changed. ``files``: path → text."""
    for path, text in files.items():
        if update(path, text):
            say(f"wrote {path}")
    return 0
