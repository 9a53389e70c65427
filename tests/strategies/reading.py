"""Plain mapping → YAML → Spec, the way a person's file goes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from infra.load import Loaded, load
from infra.load.source import parse
from infra.load.structure import validate
from infra.model import Cluster
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock
from infra.schema import Spec
from strategies.specs import Plain

_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def as_yaml(spec: Plain) -> str:
    """The text of a spec file."""
    text: str = yaml.dump(spec, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def unchecked(spec: Plain) -> Spec:
    """The spec without a look at rules across fields: what `resolve` finds by itself."""
    root, problems = parse(as_yaml(spec), "lab.yaml")
    structure = validate(root)
    assert structure.spec is not None
    assert [*problems, *structure.problems] == []
    return structure.spec


def read(spec: Plain) -> Loaded:
    """The spec, loaded from a file. Raises ``SpecError`` like ``load``."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "lab.yaml"
        path.write_text(as_yaml(spec), encoding="utf-8")
        return load(path)


def resolved(**parts: Any) -> Cluster:
    """What a spec with these parts means, without a lock."""
    spec = {"version": 1, "name": "lab", "domain": "lab.internal", **parts}
    return resolve(read(spec).spec, Lock(), "lab")[0]
