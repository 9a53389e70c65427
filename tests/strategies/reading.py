"""Plain mapping → YAML → Spec, the way a person's file goes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from infra.load import Loaded, load
from strategies.specs import Plain


def as_yaml(spec: Plain) -> str:
    """The text of a spec file."""
    return yaml.safe_dump(spec, sort_keys=False, allow_unicode=True)


def read(spec: Plain) -> Loaded:
    """The spec, loaded from a file. Raises ``SpecError`` like ``load``."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "lab.yaml"
        path.write_text(as_yaml(spec), encoding="utf-8")
        return load(path)
