"""Templates are dumb: whatever would need deciding is decided in the model."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes
from render.tools import needs, run

from infra.errors import RenderError
from infra.render.templating import ESCAPED, TEMPLATES, _environment, fill

REFUSED = (
    nodes.Compare,
    nodes.BinExpr,
    nodes.UnaryExpr,
    nodes.Call,
    nodes.CallBlock,
    nodes.Assign,
    nodes.AssignBlock,
    nodes.CondExpr,
    nodes.Macro,
    nodes.Test,
)
"""Comparisons, arithmetic, logic, calls, `set`, tests: a template that wants one wants a field."""

ALL = sorted(TEMPLATES.rglob("*.j2"))


def logic(source: str) -> Iterator[str]:
    """What is refused in a template, in words."""
    tree = jinja2.Environment(autoescape=True).parse(source)
    for kind in REFUSED:
        for node in tree.find_all(kind):
            yield f"line {node.lineno}: {type(node).__name__}"
    for loop in tree.find_all(nodes.For):
        if loop.test is not None or loop.else_ or loop.recursive:
            yield f"line {loop.lineno}: a loop that decides"
    for branch in tree.find_all(nodes.If):
        if branch.elif_ or branch.else_ or not isinstance(branch.test, nodes.Name | nodes.Getattr):
            yield f"line {branch.lineno}: an if that asks more than whether a field is there"


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.relative_to(TEMPLATES).as_posix())
def test_a_template_decides_nothing(path: Path) -> None:
    assert list(logic(path.read_text(encoding="utf-8"))) == []


@needs("shellcheck")
def test_shell_scripts_are_sound() -> None:
    files = (path for folder in (TEMPLATES, TEMPLATES.parent / "packer") for path in folder.rglob("*"))
    scripts = [path for path in files if path.is_file() and path.read_bytes().startswith(b"#!/bin/sh\n")]
    assert len(scripts) > 10
    # make-homes means what these two warn of.
    run("shellcheck", "--exclude=SC2015,SC2174", *scripts)


def test_modules_are_plain_hcl() -> None:
    modules = TEMPLATES / "terraform" / "modules"
    assert {path.suffix for path in modules.rglob("*") if path.is_file()} <= {".tf", ".md", ".hcl"}


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.relative_to(TEMPLATES).as_posix())
def test_what_a_browser_reads_is_escaped(path: Path) -> None:
    """And nothing else: HCL with `&quot;` in it would be broken."""
    escaped = path.parent == TEMPLATES / "topology"
    assert path.name.endswith(ESCAPED) == escaped
    autoescape = _environment().autoescape
    assert callable(autoescape)
    assert autoescape(path.relative_to(TEMPLATES).as_posix()) == escaped


def test_a_value_that_is_missing_is_an_error_of_ours() -> None:
    with pytest.raises(RenderError, match=r"templates/terraform/root/versions\.tf\.j2: .*required_version"):
        fill("terraform/root/versions.tf.j2")


def compiled(cache: Path, *options: str) -> list[Path]:
    """What a process that uses a template leaves in the user's cache folder."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    name = ALL[0].relative_to(TEMPLATES).as_posix()
    program = f"from infra.render.templating import _environment; _environment().get_template({name!r})"
    subprocess.run(
        [sys.executable, *options, "-c", program],
        env={**env, "XDG_CACHE_HOME": str(cache), "PYTHONPYCACHEPREFIX": str(cache / "python")},
        check=True,
    )
    return sorted((cache / "causeway" / "templates").glob("*"))


def test_compiled_templates_are_kept_between_runs(tmp_path: Path) -> None:
    assert len(compiled(tmp_path)) == 1


def test_nothing_is_kept_where_python_keeps_no_bytecode(tmp_path: Path) -> None:
    assert compiled(tmp_path, "-B") == []


def test_a_cache_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "causeway" / "templates"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert compiled(tmp_path) == []


def test_a_cache_that_cannot_be_made_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "causeway").write_text("a file in the way", encoding="utf-8")
    assert compiled(tmp_path) == []
