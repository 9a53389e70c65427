"""The language described to people and editors: a JSON Schema with each field's meaning and update policy.

The docstrings under the fields are the only place where a field is described; they are read from the
source, and only when somebody asks, so that a normal start pays nothing for them.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from infra.spec.base import Part
from infra.spec.cluster import Spec
from infra.spec.policy import Policy, Update

DIALECT = "http://json-schema.org/draft-07/schema#"
"""What editors' YAML language servers understand."""


_NUMBER = re.compile(r"[1-9]\d*(\.\d+)?")


@cache
def docs_of(part: type[BaseModel]) -> dict[str, str]:
    """Each field's docstring, as one line."""
    tree = ast.parse(inspect.getsource(part)).body[0]
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for field, doc in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(doc, ast.Expr)
            and isinstance(doc.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(doc.value.value).split())
    return found


def policy_of(part: type[BaseModel], field: str) -> Policy:
    """A field's update policy. ``LookupError`` for a field without one: a fault of ours."""
    for entry in part.model_fields[field].metadata:
        if isinstance(entry, Policy):
            return entry
    raise LookupError(f"{part.__name__}.{field} has no update policy")


def parts(root: type[BaseModel] = Spec) -> Iterator[type[BaseModel]]:
    """Every part of the language, the whole first, each once, in the order in which they are used."""
    seen: list[type[BaseModel]] = [root]
    for part in seen:
        yield part
        for info in part.model_fields.values():
            seen += [child for child in _models(info.annotation) if child not in seen]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def described(part: type[BaseModel], field: str) -> str:
    """A field's meaning and what a change of it does to a live cluster."""
    policy = policy_of(part, field)
    because = f" ({policy.because})" if policy.because else ""
    change = "Never changes after the first apply" if policy.update is Update.NEVER else None
    change = (
        change or f"A change is applied {policy.update}" if policy.update is not Update.REPLACES else change
    )
    change = change or "A change replaces what it made"
    return f"{docs_of(part).get(field, '')} {change}{because}."


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 7) of a spec, for completion and hover in editors."""
    schema = Spec.model_json_schema(mode="validation", schema_generator=GenerateJsonSchema)
    by_name = {part.__name__: part for part in parts()}
    for name, definition in [("Spec", schema), *schema.get("$defs", {}).items()]:
        part = by_name.get(name)
        if part is not None and issubclass(part, Part):
            for field, entry in definition.get("properties", {}).items():
                entry["description"] = described(part, field)
    return {"$schema": DIALECT, "title": "Causeway spec", **_numbers_too(schema)}


def _numbers_too(value: Any) -> Any:
    """Choices that are digits may be written without quotes, so both forms are offered."""
    if isinstance(value, list):
        return [_numbers_too(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    mended = {key: _numbers_too(entry) for key, entry in value.items()}
    choices = mended.get("enum", [mended["const"]] if isinstance(mended.get("const"), str) else [])
    numbers = [
        json.loads(choice) for choice in choices if isinstance(choice, str) and _NUMBER.fullmatch(choice)
    ]
    if numbers:
        mended.pop("const", None)
        mended.pop("type", None)
        mended["enum"] = [*choices, *numbers]
    return mended
