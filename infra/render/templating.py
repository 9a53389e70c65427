"""Jinja templates, for files without a data format. Templates contain no logic: values are prepared by
callers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import Final

from jinja2 import (
    Environment,
    FileSystemBytecodeCache,
    FileSystemLoader,
    StrictUndefined,
    TemplateError,
    Undefined,
    select_autoescape,
)
from platformdirs import user_cache_path

from infra.errors import RenderError
from infra.shipped_files import ROOT

TEMPLATES: Final = ROOT / "templates"
"""The folder of templates and static files; it mirrors ``build/<env>/``."""


ESCAPED: Final = ("html.j2",)
"""Extensions of templates whose values are escaped, as a browser reads the result."""


@cache
def _environment(*, json_values: bool = False) -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        finalize=_as_json if json_values else None,
        # By the file's name, so that no caller can forget it, and included templates have their own setting.
        autoescape=select_autoescape(ESCAPED, default=False),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        bytecode_cache=_bytecode_cache(),
    )


def _bytecode_cache() -> FileSystemBytecodeCache | None:
    """A cache of compiled templates between runs, which saves 50 ms of a render.

    None if Python writes no bytecode (``-B``), or the user's cache folder is not writable.
    """
    if sys.dont_write_bytecode:
        return None
    folder = user_cache_path("causeway") / "templates"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    # Bytecode is executed, so the folder is trusted only if no other user can write to it.
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022 or not os.access(folder, os.W_OK):
        return None
    return FileSystemBytecodeCache(str(folder))


def _as_json(value: object) -> object:
    return value if isinstance(value, Undefined) else json.dumps(value, ensure_ascii=False)


def fill(template: str, **values: object) -> str:
    """Render a template, a path below ``templates/``; values are escaped in ``ESCAPED`` ones.

    Raises ``RenderError`` if it uses a value that is not in ``values``.
    """
    return _filled(_environment(), template, values)


def fill_yaml(template: str, /, **values: object) -> str:
    """Render a YAML template. Each value is written as JSON, which YAML contains, so that no text becomes
    more than one value."""
    return _filled(_environment(json_values=True), template, values)


def _filled(environment: Environment, template: str, values: Mapping[str, object]) -> str:
    try:
        return environment.get_template(template).render(values)
    except TemplateError as problem:
        raise RenderError(f"templates/{template}: {problem}") from problem


@cache
def static(folder: str) -> dict[str, str]:
    """Path → text of every Terraform file below a folder of ``templates/``, sorted; paths are relative to
    it.

    Other files are left out, such as those that ``terraform init`` writes in a module under development.
    """
    root = TEMPLATES / folder
    paths = sorted(path for path in root.rglob("*.tf") if ".terraform" not in path.parts)
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}


@cache
def copied(target: str) -> dict[str, str]:
    """Path on a machine → text of every file in ``templates/<target>/static``, sorted: the files that are
    the same on every machine of the target. Without bytecode that pip compiles when it installs the
    wheel."""
    root = TEMPLATES / target / "static"
    paths = sorted(path for path in root.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}
