"""The Chef repository: its forms, and that it asks for nothing that is not there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from golden_clusters import golden
from golden_folders import GOLDEN, LOCK, SPEC, scenarios
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace
from render.tools import needs, run, write
from strategies.outputs import outputs_for
from strategies.reading import read
from strategies.specs import Plain, specs

from infra.errors import RenderError
from infra.load import load
from infra.model import Cluster, to_json
from infra.render.chef import environment as chef_environment
from infra.render.chef import render
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock, parse
from infra.resolve.software import run_list

BESIDE = {"causeway", "software"}
"""First-level attributes that belong to no cookbook."""


def objects(files: Mapping[str, str], folder: str = "") -> dict[str, Any]:
    """Name → what a JSON file below a folder says."""
    return {
        path.removeprefix(f"{folder}/").removesuffix(".json"): json.loads(text)
        for path, text in files.items()
        if path.startswith(folder) and path.endswith(".json")
    }


def environment(cluster: Cluster) -> dict[str, Any]:
    environments = objects(render(cluster, outputs_for(cluster)), "environments")
    return dict(environments[cluster.environment])


def attributes(files: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each file with attributes, and these."""
    for path, found in objects(files).items():
        for level in ("default_attributes", "override_attributes", "normal"):
            if level in found:
                yield f"{path} {level}", found[level]


def entries(files: Mapping[str, str]) -> Iterator[str]:
    for found in objects(files).values():
        yield from found.get("run_list", ())


# -- It asks for nothing that is not there ---------------------------------------------------------------


@pytest.mark.parametrize("scenario", scenarios())
def test_every_run_list_names_roles_and_recipes_that_exist(scenario: str) -> None:
    files = render(golden(scenario))
    roles = objects(files, "roles")
    wanted = set(entries(files))
    assert wanted
    for entry in wanted:
        match = re.fullmatch(r"(role|recipe)\[([a-z_-]+)(?:::([a-z_]+))?\]", entry)
        assert match is not None, entry
        kind, name, recipe = match.groups()
        if kind == "role":
            assert name in roles, entry
        else:
            assert (chef_environment.COOKBOOKS / name / "recipes" / f"{recipe or 'default'}.rb").is_file(), (
                entry
            )


@pytest.mark.parametrize("scenario", scenarios())
def test_every_attribute_belongs_to_a_cookbook(scenario: str) -> None:
    named = BESIDE | set(chef_environment.versions())
    for where, found in attributes(render(golden(scenario))):
        assert set(found) <= named, where


@pytest.mark.parametrize(
    ("line", "version"),
    [("version '0.1.0'", "0.1.0"), ('version        "12.3.4"', "12.3.4"), ("version '1.2'", "1.2")],
)
def test_a_version_is_read_from_metadata(
    line: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "metadata.rb").write_text(f"name 'gpu'\nchef_version '>= 18.0'\n{line}\n")
    (tmp_path / "notes").mkdir()
    monkeypatch.setattr(chef_environment, "COOKBOOKS", tmp_path)
    assert chef_environment.versions.__wrapped__() == {"gpu": version}


def test_metadata_without_a_version_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "metadata.rb").write_text("version IO.read('VERSION')\n")
    monkeypatch.setattr(chef_environment, "COOKBOOKS", tmp_path)
    with pytest.raises(RenderError, match=r"cookbooks/gpu/metadata\.rb"):
        chef_environment.versions.__wrapped__()


# -- Forms -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", scenarios())
def test_objects_are_called_like_their_files(scenario: str) -> None:
    files = render(golden(scenario))
    for folder in ("roles", "environments", "nodes"):
        for name, found in objects(files, folder).items():
            assert found["name"] == name
    for bag in ("users", "groups"):
        for name, item in objects(files, f"data_bags/{bag}").items():
            assert item["id"] == name
    for path, text in files.items():
        if path.endswith(".json"):
            assert text == to_json(json.loads(text)), path


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(specs())
def test_any_spec_has_an_object_for_each_of_its_machines(spec: Plain) -> None:
    cluster, _ = resolve(read(spec).spec, Lock(), "lab")
    files = render(cluster, outputs_for(cluster))
    nodes = objects(files, "nodes")
    physical = {node.name for site in cluster.sites for node in site.nodes}
    assert set(nodes) == physical | {each.hostname for each in cluster.instances}
    assert len(nodes) == len(physical) + len(cluster.instances)
    roles = objects(files, "roles")
    for entry in entries(files):
        assert entry.startswith("recipe[") or entry[5:-1] in roles
    for site in cluster.sites:
        for node in site.nodes:
            normal = nodes[node.name]["normal"]
            assert nodes[node.name]["chef_environment"] == "lab"
            assert normal["causeway"]["address"] == str(node.address)
            assert ("gpu" in normal) == (node.gpus is not None)
            assert ("kubernetes" in normal) == bool({"worker", "gpu-worker"} & {*node.roles})
    assert set(objects(files, "images")) == {image.name for image in cluster.images}


# -- Machines ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("its_roles", "expected"),
    [
        (("gpu-worker",), None),
        (("site-gateway",), None),
        (("gpu-worker", "site-gateway"), False),
        (("access-gateway", "ssh-node"), False),
        (("nfs-server", "gpu-worker"), None),
    ],
)
def test_a_gateway_that_takes_runs_has_its_own_tables_alone(
    its_roles: tuple[str, ...], expected: bool | None
) -> None:
    """The table of `direct_runs` would drop what tunnels and laptops come in by."""
    machines = golden("machines")
    site = machines.sites[0]
    own = run_list(its_roles, site.nodes[0].gpus)
    node = replace(site.nodes[0], roles=its_roles, run_list=own)
    changed = replace(machines, sites=(replace(site, nodes=(node, *site.nodes[1:])),))
    normal = objects(render(changed), "nodes")[node.name]["normal"]
    assert normal.get("direct_runs", {}).get("firewall") is expected
    within = objects(render(golden("research")), "nodes").values()
    assert not any("direct_runs" in each["normal"] for each in within)


# -- People ------------------------------------------------------------------------------------------------


def test_who_left_is_removed_for_good() -> None:
    spec = load(GOLDEN / "research" / SPEC).spec
    lock = parse((GOLDEN / "research" / LOCK).read_text(), LOCK)
    access = spec.access
    left = {
        "users": {"ada": access.users["ada"]},
        "groups": {"engineers": access.groups["engineers"]},
    }
    gone = spec.model_copy(update={"access": access.model_copy(update=left)})
    cluster, kept = resolve(gone, lock, "research")
    bags = render(cluster)
    users, groups = objects(bags, "data_bags/users"), objects(bags, "data_bags/groups")
    assert {name: item["action"] for name, item in users.items()} == {
        "ada": "create", "alan": "remove", "grace": "remove",
    }  # fmt: skip
    assert (users["alan"]["uid"], users["alan"]["ssh_keys"]) == (10002, [])
    assert {name: item["action"] for name, item in groups.items()} == {
        "engineers": "create", "researchers": "remove",
    }  # fmt: skip
    again, _ = resolve(gone, kept, "research")
    assert render(again) == bags


def test_before_an_apply_file_systems_have_no_ids() -> None:
    (found,) = objects(render(golden("research")), "environments").values()
    mounts = found["default_attributes"]["storage"]["sites"]["us-west-2"]["mounts"]
    (home,) = (mount for mount in mounts if mount["path"] == "/home")
    assert (home["kind"], home["file_system"], home["access_point"]) == ("efs", None, None)


# -- Ruby --------------------------------------------------------------------------------------------------

ruby = needs("ruby")

POLICY = """
require 'json'
$told = { 'named' => {}, 'paths' => {}, 'default' => {} }
def name(value) = $told['name'] = value
def run_list(*items) = $told['run_list'] = items
def named_run_list(role, *items) = $told['named'][role] = items
def cookbook(book, path:) = $told['paths'][book] = path
def default = $told['default']
load ARGV[0]
puts JSON.generate($told)
"""
"""Stands for the language of Policyfiles: what one says, as JSON."""

HANDLER = """
$LOAD_PATH.unshift ARGV[0]
require File.join(ARGV[1], 'handlers', 'run_report')
module Told
  Chef::Config[:why_run] = ARGV[3] == 'why'
end
handler = Causeway::RunReport.new(ARGV[1], ARGV[2])
handler.status = ARGV[3] == 'early' ? Early.new : Fine.new
handler.report
"""

CHEF = """
class Chef
  VERSION = '18.0.0'
  Config = {}
  class Handler
    attr_accessor :status
    def run_status = status
    def run_context = status.run_context
    def start_time = status.start_time
    def end_time = status.end_time
    def success? = status.formatted_exception.nil?
    def all_resources = %w[a b c]
    def updated_resources = [:'package[vim]', :'package[vim]', :'file[/etc/x]']
  end
end
Cookbook = Struct.new(:version)
Context = Struct.new(:cookbook_collection)
class Fine
  def run_context = Context.new({ gpu: Cookbook.new('0.1.0'), base: Cookbook.new('0.1.0') })
  def start_time = Time.at(0)
  def end_time = Time.at(90)
  def formatted_exception = nil
end
class Early
  def run_context = nil
  def start_time = Time.at(0)
  def end_time = nil
  def formatted_exception = 'RuntimeError: no cookbooks'
end
"""
"""Stands for the part of Chef::Handler that ours uses."""


@ruby
@pytest.mark.parametrize("scenario", scenarios())
def test_ruby_finds_nothing_wrong(scenario: str, tmp_path: Path) -> None:
    files = {path: text for path, text in render(golden(scenario)).items() if path.endswith(".rb")}
    assert set(files) == {"Policyfile.rb", "client.rb", "handlers/run_report.rb"}
    write(tmp_path, files)
    for path in files:
        assert run("ruby", "-wc", str(tmp_path / path)) == "Syntax OK\n"


@ruby
def test_the_policyfile_says_what_roles_and_environment_say(tmp_path: Path) -> None:
    cluster = golden("research")
    files = render(cluster, outputs_for(cluster))
    write(tmp_path, {**files, "policy.rb": POLICY})
    told = json.loads(run("ruby", str(tmp_path / "policy.rb"), str(tmp_path / "Policyfile.rb")))
    assert told["name"] == "research"
    assert told["default"] == environment(cluster)["default_attributes"]
    assert set(told["named"]) == set(objects(files, "roles"))
    assert told["named"]["gpu-worker-pascal"] == [
        "base", "storage", "gpu", "container_runtime", "kubernetes::worker",
    ]  # fmt: skip
    assert told["paths"] == {name: f"../../../cookbooks/{name}" for name in chef_environment.versions()}


@ruby
@pytest.mark.parametrize("case", ["fine", "why", "early"])
def test_a_run_leaves_its_report(case: str, tmp_path: Path) -> None:
    repository = tmp_path / "chef"
    write(repository, render(golden("minimal")))
    write(tmp_path, {"lib/chef/handler.rb": CHEF, "run.rb": HANDLER})
    if case == "fine":
        (repository / "inputs").write_text("abc\n")
    given = tmp_path / "var" / "report.json"
    report = given.with_name("why-run.json") if case == "why" else given
    run("ruby", str(tmp_path / "run.rb"), str(tmp_path / "lib"), str(repository), str(given), case)
    assert [path.name for path in report.parent.iterdir()] == [report.name]
    assert report.stat().st_mode & 0o777 == 0o644
    early = case == "early"
    assert json.loads(report.read_text()) == {
        "started": "1970-01-01T00:00:00Z",
        "ended": None if early else "1970-01-01T00:01:30Z",
        "success": not early,
        "why_run": case == "why",
        "updated": [] if early else ["package[vim]", "file[/etc/x]"],
        "total": 0 if early else 3,
        "exception": "RuntimeError: no cookbooks" if early else None,
        "chef": "18.0.0",
        "cookbooks": {} if early else {"base": "0.1.0", "gpu": "0.1.0"},
        "inputs": "abc" if case == "fine" else None,
    }
