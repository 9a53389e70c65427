"""docs/job.md and the schema say what the language says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from causeway.errors import InputError
from causeway.job import Job
from causeway.jobfile import load
from causeway.reference import json_schema, texts


@pytest.mark.parametrize("path", [*texts()], ids=str)
def test_the_generated_files_are_of_this_language(path: Path) -> None:
    """Fails after a change of the language until `invoke docs`."""
    assert path.read_text(encoding="utf-8") == texts()[path]


def test_every_field_is_described() -> None:
    schema = json_schema()
    parts = {"Job": schema, **schema["$defs"]}
    missing = [
        f"{name}.{field}"
        for name, part in parts.items()
        for field, entry in part.get("properties", {}).items()
        if not entry.get("description")
    ]
    assert missing == []
    assert set(schema["properties"]) == {info.alias or name for name, info in Job.model_fields.items()}


_SEARCH = "{run: 'x {parameters}', sweep: {parameters: %s}}"
_SEARCHES = [
    ("{a: {log: [1e-5, 1]}, b: [1, {c: {d: {int: [1, 2]}}}]}, metric: m, trials: 2", True),
    ("{a: {float: [0, 1], step: 0.1}}, metric: m, trials: 2, stop: median", True),
    ("{a: {log: [x, 1]}}, metric: m, trials: 2", False),
    ("{a: {int: [1, 2.5]}}, metric: m, trials: 2", False),
    ("{a: {int: [1, 2, 3]}}, metric: m, trials: 2", False),
    ("{a: {lgo: [1, 2]}}, metric: m, trials: 2", False),
    ("{a: []}, metric: m, trials: 2", False),
    ("{a: [1]}, trials: 2", False),
    ("{a: [1]}, metric: m, trials: 2, stop: fast", False),
]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("run: x", True),
        ("{run: [python, t.py], gpus: 8, nodes: 2, time: 1d12h, memory: 40 GiB}", True),
        ("{run: x, gpus: {count: 2, class: new}, code: false}", True),
        ("{run: x, code: src, roles: {chief: 1, ps: {count: 2, gpus: 0}}}", True),
        ("{run: x, where: {sites: [a], near: rack}, restarts: 0, ports: [80]}", True),
        ("{run: x, checkpoints: {keep: 3, metric: loss, goal: maximize}, stall: 30m}", True),
        ("{run: [echo, 1, true], env: {A: 1, B: false, C: null}, time: '1-12:00:00'}", True),
        ("{run: x, time: '12:00'}", False),
        ("{run: x, checkpoints: {keep: 0}}", False),
        ("gpus: 1", False),
        ("{run: x, time: 24}", False),
        ("{run: x, memory: much}", False),
        ("{run: x, node: 2}", False),
        ("{run: x, gpus: -1}", False),
        ("{run: x, code: true}", False),
        ("{run: x, roles: {master: 1}}", False),
        ("{run: x, launcher: mpi}", False),
        *((_SEARCH % sweep, right) for sweep, right in _SEARCHES),
    ],
)
def test_the_schema_and_the_client_agree(folder: Path, text: str, right: bool) -> None:
    value: Any = yaml.safe_load(text)
    errors = list(jsonschema.Draft7Validator(json_schema()).iter_errors(value))
    (folder / "job.yaml").write_text(text)
    try:
        load(folder / "job.yaml", {}, {})
    except InputError:
        assert not right
    else:
        assert right
    assert (errors == []) is right, errors
