"""Every cookbook: Ruby that parses and keeps the style, whole metadata, documented attributes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cookbooks.kitchen import COOKBOOKS, RENDER, Tool, cookbooks, run

NAMES = [each.name for each in cookbooks()]

METADATA = {
    "maintainer": "The Causeway authors",
    "license": "Apache-2.0",
    "version": "0.1.0",
    "chef_version": ">= 18.0",
}


def ruby_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.rb"))


def test_ruby_parses(tool: Tool) -> None:
    ruby = tool("ruby", "ruby")
    # One process for all: `ruby -c` takes one file.
    script = "ARGV.each { |file| RubyVM::InstructionSequence.compile_file(file) }"
    run(ruby, "-w", "-e", script, *ruby_files(COOKBOOKS), RENDER)


def test_style(tool: Tool) -> None:
    config = COOKBOOKS / ".rubocop.yml"
    run(tool("rubocop", "rubocop"), "--config", config, "--cache", "false", COOKBOOKS, RENDER)


@pytest.mark.parametrize("name", NAMES)
def test_metadata(name: str) -> None:
    text = (COOKBOOKS / name / "metadata.rb").read_text()
    fields = dict(re.findall(r"^(\w+)\s+'([^']*)'$", text, re.MULTILINE))
    assert {key: fields.get(key) for key in METADATA} == METADATA
    assert fields["name"] == name
    assert fields["description"]
    supported = set(re.findall(r"^supports\s+'(\w+)', '(>= [\d.]+)'$", text, re.MULTILINE))
    assert supported == {("ubuntu", ">= 22.04"), ("debian", ">= 12.0")}
    depends = dict(re.findall(r"^depends\s+'(\w+)', '([^']*)'$", text, re.MULTILINE))
    assert set(depends.values()) <= {"~> 0.1"}
    assert set(depends) <= set(NAMES)
    assert ("base" in depends) is (name != "base")


@pytest.mark.parametrize("name", NAMES)
def test_has_what_a_cookbook_has(name: str) -> None:
    folder = COOKBOOKS / name
    assert (folder / "README.md").is_file()
    assert list((folder / "recipes").glob("*.rb"))
    recipes = {each.stem for each in (folder / "recipes").glob("[!_]*.rb")}
    specs = {each.stem.removesuffix("_spec") for each in (folder / "spec/unit/recipes").glob("*_spec.rb")}
    assert specs == recipes, "each recipe has a spec, and each spec a recipe"


@pytest.mark.parametrize("name", NAMES)
def test_attributes_are_documented(name: str) -> None:
    """What recipes, resources and templates read of ``node['<cookbook>']`` is in attributes/default.rb; each
    top-level attribute there has a comment above it and stands in the README."""
    folder = COOKBOOKS / name
    default = folder / "attributes" / "default.rb"
    text = default.read_text() if default.exists() else ""
    declared = set(re.findall(rf"^\s*default\['{name}'\]\['(\w+)'\]", text, re.MULTILINE))
    used = set()
    for part in ("recipes", "resources", "libraries", "templates"):
        for path in (folder / part).rglob("*"):
            if path.is_file():
                used |= set(re.findall(rf"node\['{name}'\]\['(\w+)'\]", path.read_text()))
    assert used <= declared
    readme = (folder / "README.md").read_text()
    assert {each for each in declared if f"`{each}`" not in readme and f"['{each}']" not in readme} == set()
    undocumented = re.findall(rf"^\n+default\['{name}'\]\['(\w+)'\]", text, re.MULTILINE)
    assert undocumented == [], "a comment above each says what it is"


@pytest.mark.parametrize("name", NAMES)
def test_resources_are_modern_and_described(name: str) -> None:
    for path in ruby_files(COOKBOOKS / name / "resources"):
        text = path.read_text()
        assert "unified_mode true" in text, path
        assert f"provides :{name}_{path.stem}" in text, path
        properties = re.split(r"^property ", text, flags=re.MULTILINE)[1:]
        bare = [each.split(",")[0] for each in properties if "description:" not in each.split("\n\n")[0]]
        assert bare == [], path


@pytest.mark.parametrize("name", NAMES)
def test_statements_in_templates_end_their_line(name: str) -> None:
    """Chef's Erubis and Ruby's ERB then agree on every newline."""
    for path in (COOKBOOKS / name / "templates").rglob("*.erb"):
        lines = path.read_text().splitlines()
        loose = [line for line in lines if re.fullmatch(r"\s*<%(?![=#-]).*(?<!-)%>\s*", line)]
        assert loose == [], path
