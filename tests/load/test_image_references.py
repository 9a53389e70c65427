"""One grammar for all fields that name a container image."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import SpecError
from infra.load import load
from infra.schema.types import IMAGE_REFERENCE

SPEC = """\
version: 1
name: first
domain: first.internal
sites:
  us-west-2: {kind: aws, primary: true}
images:
  cpu: {ubuntu: 24.04}
pools:
  cpu:
    image: cpu
    instance_types: [m6i.xlarge]
    regions: {us-west-2: {max: 4}}
kubernetes:
  tracking: {image: "REFERENCE", database: pod}
autoscaler: {image: "REFERENCE"}
research:
  tools: "REFERENCE"
  default_image: torch
  images:
    torch: {image: "REFERENCE"}
"""
DIGEST = f"sha256:{'0f' * 32}"


def malformed(folder: Path, reference: str) -> set[str]:
    """The fields of a spec with this reference everywhere that can't be what they are."""
    file = folder / "x.yaml"
    file.write_text(SPEC.replace("REFERENCE", reference))
    try:
        problems = load(file).problems
    except SpecError as error:
        problems = tuple(error.problems)
    return {each.path for each in problems if each.code.startswith("SPEC")}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("busybox", ("busybox", None, None)),
        ("redis:5000", ("redis", "5000", None)),
        ("pytorch/pytorch:2.9.1-cuda12.8", ("pytorch/pytorch", "2.9.1-cuda12.8", None)),
        ("Registry.lab.example:5000/a__b/c-d:1", ("Registry.lab.example:5000/a__b/c-d", "1", None)),
        (f"localhost/x@{DIGEST}", ("localhost/x", None, DIGEST)),
        (f"x/y:1@{DIGEST}", ("x/y", "1", DIGEST)),
    ],
)
def test_references(tmp_path: Path, text: str, parts: tuple[str, str | None, str | None]) -> None:
    found = IMAGE_REFERENCE.fullmatch(text)
    assert found is not None
    assert (found["name"], found["tag"], found["digest"]) == parts
    assert malformed(tmp_path, text) == set()


@pytest.mark.parametrize(
    "text",
    [
        "https://registry.lab.example/x:1", "Busybox", "x/Y:1", "x y", "x:", "x:-1", "x@sha256:12",
        "/x", "x/", "x//y", "x:1:2", "a___b", "",
    ],
)  # fmt: skip
def test_what_no_registry_could_have_is_reported_for_each_field_at_once(tmp_path: Path, text: str) -> None:
    assert malformed(tmp_path, text) == {
        "kubernetes.tracking.image", "autoscaler.image", "research.tools", "research.images.torch.image",
    }  # fmt: skip
