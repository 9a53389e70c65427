"""The language describes itself: every field has a meaning and a policy, and editors get a sound schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from infra.spec.reference import described, docs_of, json_schema, parts, policy_of


class Editor(yaml.SafeLoader):
    """Reads as YAML language servers do: YAML 1.2 has no dates."""


Editor.yaml_implicit_resolvers = {
    first: [(tag, expression) for tag, expression in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def test_every_field_has_a_meaning_and_an_update_policy() -> None:
    fields = [(part, field) for part in parts() for field in part.model_fields]
    assert len(fields) > 200
    for part, field in fields:
        assert docs_of(part).get(field), f"{part.__name__}.{field} has no docstring"
        assert policy_of(part, field)


def test_a_description_says_what_a_change_does() -> None:
    by_name = {part.__name__: part for part in parts()}
    text = described(by_name["AwsSite"], "cidr")
    assert text.startswith("The VPC's block.")
    assert text.endswith("Never changes after the first apply (can't change on a live VPC).")
    assert "A change is applied rolling." in described(by_name["Pool"], "image")
    assert "A change replaces what it made." in described(by_name["Pool"], "placement_group")


@pytest.mark.parametrize("name", ["minimal", "base", "local", "research"])
def test_the_schema_accepts_the_shipped_environments(name: str) -> None:
    written = yaml.load(Path(f"environments/{name}.yaml").read_text(), Editor)
    schema = json_schema()
    if "extends" in written or name == "base":
        schema = {**schema, "required": []}
    jsonschema.Draft7Validator.check_schema(schema)
    assert [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(written)] == []


def test_the_schema_refuses_what_the_language_refuses() -> None:
    validator = jsonschema.Draft7Validator(json_schema())
    spec = {
        "version": 1,
        "name": "x",
        "domain": "x.internal",
        "sites": {"us-west-2": {"kind": "aws", "zone": 1}},
    }
    assert list(validator.iter_errors(spec))


def test_the_shipped_schema_is_of_this_language() -> None:
    """Fails after a change of the language until `invoke schema > environments/spec.schema.json`."""
    assert json.loads(Path("environments/spec.schema.json").read_text()) == json_schema()
