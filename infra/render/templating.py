"""Jinja, for what has no data format of its own. Templates decide nothing: values come ready for use."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, select_autoescape

from infra.errors import RenderError

TEMPLATES: Final = Path(__file__).parents[2] / "templates"
"""The folder of templates and static files; it mirrors ``build/<env>/``."""


ESCAPED: Final = ("html.j2", "svg.j2")
"""Ends of templates' names whose values are escaped: a browser reads what they make."""


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        # By its name, so that no caller can forget it, and a template that is included has its own way.
        autoescape=select_autoescape(ESCAPED, default=False),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def fill(template: str, **values: object) -> str:
    """The text of a template, a path below ``templates/``; values are escaped in ``ESCAPED`` ones.

    ``RenderError`` when it asks for something that ``values`` does not have.
    """
    try:
        return _environment().get_template(template).render(values)
    except TemplateError as problem:
        raise RenderError(f"templates/{template}: {problem}") from problem


@cache
def static(folder: str) -> dict[str, str]:
    """Path → text of every Terraform file below a folder of ``templates/``, sorted; paths are relative to it.

    Nothing else, such as what ``terraform init`` leaves behind in a module somebody works on.
    """
    root = TEMPLATES / folder
    paths = sorted(path for path in root.rglob("*.tf") if ".terraform" not in path.parts)
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}


@cache
def copied(target: str) -> dict[str, str]:
    """Path on a machine → text of every file in ``templates/<target>/static``, sorted: what is the same on
    every machine of the target."""
    root = TEMPLATES / target / "static"
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}
