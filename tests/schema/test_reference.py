"""The language describes itself: every field has a meaning and a policy, and editors get a sound schema."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from infra.schema.base import policy_of
from infra.schema.reference import described, docs_of, json_schema, parts


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
    for part, field, word in (
        ("AwsSite", "cidr", "Never"),
        ("Pool", "image", "rolling"),
        ("Pool", "placement_group", "replaces"),
    ):
        text = described(by_name[part], field)
        assert text.startswith(docs_of(by_name[part])[field].split(".")[0])
        assert word in text


@pytest.mark.parametrize("name", ["minimal", "base", "local", "machines", "research"])
def test_the_schema_accepts_the_shipped_environments(name: str) -> None:
    written = yaml.load(Path(f"environments/{name}.yaml").read_text(), Editor)
    schema = json_schema()
    if name == "base":  # a part of an environment, and none itself
        schema = {**schema, "then": {}}
    jsonschema.Draft7Validator.check_schema(schema)
    assert [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(written)] == []


WRONG = {
    "an unknown key of a site": {"sites": {"us-west-2": {"kind": "aws", "zone": 1}}},
    "a key of the other kind of site": {"sites": {"us-west-2": {"kind": "aws", "nodes": {}}}},
    "an unknown kind": {"sites": {"us-west-2": {"kind": "azure"}}},
    "a list for a mapping": {"pools": []},
    "a size without a unit": {"images": {"cpu": {"root_disk": 40}}},
    "a duration without a unit": {"autoscaler": {"idle": 600}},
    "a block without a length": {"supernet": "10.0.0.0"},
    "yes for true": {"aws": {"embedded": "yes"}},
    "an unknown choice": {"images": {"cpu": {"ubuntu": 20.04}}},
    "a name in capitals": {"name": "Lab"},
    "less than the least": {"kubernetes": {"pods": {"pods_per_node": 0}}},
    "more than the most": {"kubernetes": {"namespaces": {"pods": 150001}}},
    "nothing of its domain": {"domain": ...},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_the_schema_refuses_what_the_language_refuses(wrong: dict[str, object]) -> None:
    validator = jsonschema.Draft7Validator(json_schema())
    right = {"version": 1, "name": "x", "domain": "x.internal", "sites": {"us-west-2": {"kind": "aws"}}}
    spec = {key: value for key, value in (right | wrong).items() if value is not ...}
    assert validator.is_valid(right)
    assert not validator.is_valid(spec)


def test_what_is_extended_may_say_the_rest() -> None:
    validator = jsonschema.Draft7Validator(json_schema())
    assert validator.is_valid({"version": 1, "extends": "base.yaml"})
    assert not validator.is_valid({"version": 1})


def test_hover_has_a_text_for_every_field() -> None:
    schema = json_schema()
    fields = [
        (name, field, entry.get("description"))
        for name, part in [("Spec", schema), *schema["$defs"].items()]
        for field, entry in part.get("properties", {}).items()
    ]
    assert len(fields) > 200
    assert [(name, field) for name, field, text in fields if not text] == []
