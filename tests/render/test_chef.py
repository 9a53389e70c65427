"""The Chef repository: its forms, and that it asks for nothing that is not there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from golden_folders import GOLDEN, LOCK, SPEC, scenarios
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace
from strategies.outputs import outputs_for
from strategies.reading import read
from strategies.specs import Plain, specs

from infra.errors import RenderError
from infra.load import load
from infra.model import Cluster, to_json
from infra.render.chef import cookbooks, render, roles
from infra.render.chef.nodes import run_list
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock, parse

BESIDE = {"causeway", "software"}
"""First-level attributes that belong to no cookbook."""


@cache
def golden(scenario: str) -> Cluster:
    folder = GOLDEN / scenario
    kept = parse((folder / LOCK).read_text(), LOCK)
    return resolve(load(folder / SPEC).spec, kept, scenario)[0]


def objects(files: Mapping[str, str], folder: str = "") -> dict[str, Any]:
    """Name → what a JSON file below a folder says."""
    return {
        path.removeprefix(f"{folder}/").removesuffix(".json"): json.loads(text)
        for path, text in files.items()
        if path.startswith(folder) and path.endswith(".json")
    }


def environment(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = objects(render(cluster, outputs_for(cluster)), "environments")[
        cluster.environment
    ]
    return found


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
            assert (cookbooks.COOKBOOKS / name / "recipes" / f"{recipe or 'default'}.rb").is_file(), entry


@pytest.mark.parametrize("scenario", scenarios())
def test_every_attribute_belongs_to_a_cookbook(scenario: str) -> None:
    named = BESIDE | set(cookbooks.versions())
    for where, found in attributes(render(golden(scenario))):
        assert set(found) <= named, where


def test_cookbooks_are_pinned_to_the_versions_that_are_there() -> None:
    pins = environment(golden("research"))["cookbook_versions"]
    assert pins == {name: f"= {version}" for name, version in cookbooks.versions().items()}
    for name in pins:
        metadata = (cookbooks.COOKBOOKS / name / "metadata.rb").read_text()
        assert re.search(rf"^name\s+'{name}'$", metadata, re.MULTILINE), name


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
    monkeypatch.setattr(cookbooks, "COOKBOOKS", tmp_path)
    assert cookbooks.versions.__wrapped__() == {"gpu": version}


def test_metadata_without_a_version_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "metadata.rb").write_text("version IO.read('VERSION')\n")
    monkeypatch.setattr(cookbooks, "COOKBOOKS", tmp_path)
    with pytest.raises(RenderError, match=r"cookbooks/gpu/metadata\.rb states no version"):
        cookbooks.versions.__wrapped__()


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


def test_a_titan_is_a_worker_with_pascal_cards() -> None:
    node = objects(render(golden("research")), "nodes")["titan-a01"]
    assert node["run_list"] == ["role[gpu-worker-pascal]"]
    assert node["normal"]["gpu"] == {
        "driver": 580, "cuda": None, "open_kernel_modules": False, "fabric_manager": False,
        "family": "pascal", "model": "titan-x-pascal", "count": 4,
    }  # fmt: skip
    assert node["normal"]["kubernetes"]["node_ip"] == "10.200.0.11"
    assert node["normal"]["storage"]["disks"][1] == {
        "device": "/dev/nvme0n1", "size_mib": 2 * 1024 * 1024, "use": "scratch",
    }  # fmt: skip


def test_a_family_s_role_says_which_driver_runs_its_cards() -> None:
    roles = objects(render(golden("research")), "roles")
    gpu = {
        name: role["default_attributes"]["gpu"]
        for name, role in roles.items()
        if "driver" in role["default_attributes"].get("gpu", {})
    }
    assert {name: (each["driver"], each["open_kernel_modules"]) for name, each in gpu.items()} == {
        "gpu-worker-ampere": (580, True),
        "gpu-worker-hopper": (580, True),
        "gpu-worker-kepler": (470, False),
        "gpu-worker-pascal": (580, False),
        "gpu-worker-volta": (580, False),
    }
    assert roles["gpu-worker-pascal"]["run_list"] == ["role[gpu-worker]"]


@pytest.mark.parametrize("role", ["worker", "gpu-worker", "gpu-worker-pascal", "ssh-node", "access-gateway"])
def test_without_a_cluster_no_machine_is_a_node(role: str) -> None:
    alone = replace(golden("research"), control_plane=None)
    node = {"container_runtime", "kubernetes::worker"}
    within, without = (set(roles.run_lists(each)[role]) for each in (golden("research"), alone))
    assert node <= within
    takes_runs = {"direct_runs"} if role != "access-gateway" else set()
    assert without == within - node | takes_runs
    # The same by roles, which is what machines are sent.
    written = objects(render(alone), "roles")
    entry = written[role]["run_list"][-1]
    while entry.startswith("role["):
        entry = written[entry[5:-1]]["run_list"][-1]
    assert entry == ("recipe[direct_runs]" if takes_runs else "recipe[network_access]")


def test_without_a_cluster_cards_are_left_to_no_add_on() -> None:
    assert environment(golden("machines"))["default_attributes"]["software"]["uv"]["version"]
    files = render(golden("machines"))
    assert {"role[gpu-worker-pascal]"} == {
        entry for node in objects(files, "nodes").values() for entry in node["run_list"]
    }
    assert objects(files, "roles")["gpu-worker"]["default_attributes"] == {}


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
    node = replace(site.nodes[0], roles=its_roles)
    changed = replace(machines, sites=(replace(site, nodes=(node, *site.nodes[1:])),))
    normal = objects(render(changed), "nodes")[node.name]["normal"]
    assert normal.get("direct_runs", {}).get("firewall") is expected
    within = objects(render(golden("research")), "nodes").values()
    assert not any("direct_runs" in each["normal"] for each in within)


def test_what_serves_others_comes_first() -> None:
    assert run_list(("ssh-node", "worker", "nfs-server", "site-gateway"), None) == [
        "role[site-gateway]", "role[nfs-server]", "role[worker]", "role[ssh-node]",
    ]  # fmt: skip


def test_cards_have_a_driver_whatever_the_machine_is_for() -> None:
    titan = golden("research").sites[0].nodes[2]
    assert titan.gpus is not None
    assert run_list(("ssh-node",), titan.gpus) == [
        "role[base]", "recipe[gpu]", "role[ssh-node]",
    ]  # fmt: skip


def test_an_image_is_baked_as_no_machine_of_its_own() -> None:
    image = objects(render(golden("research")), "images")["gpu-nvswitch"]
    assert image["run_list"] == ["role[base]", "role[gpu-worker]"]
    assert image["normal"]["causeway"]["baking"] is True
    assert image["normal"]["gpu"]["fabric_manager"] is True
    assert image["name"] not in objects(render(golden("research")), "nodes")


def test_what_all_machines_have_in_common_is_said_once() -> None:
    cluster = golden("transit")
    files = render(cluster)
    common = environment(cluster)["default_attributes"]
    assert common["base"]["time_servers"] == ["10.120.0.2", "ntp.transit.example"]
    assert common["base"]["unattended_upgrades"] is False
    # Neighbours first, for every registry; then the spec's own mirrors.
    mirrors, neighbours = common["container_runtime"]["registry_mirrors"], "http://127.0.0.1:29020"
    assert mirrors["_default"] == [neighbours, "https://mirror.transit.example"]
    assert mirrors["lab.example:5000"] == [neighbours, "https://mirror.transit.example:8443"]
    # An attribute of a node replaces the environment's: an image's packages include those of all machines.
    assert common["base"]["packages"] == ["htop", "nvtop=3.1.0-1"]
    every = ["htop", "nvtop=3.1.0-1", "zstd"]
    assert objects(files, "images")["arm"]["normal"]["base"]["packages"] == every
    assert objects(files, "nodes")["master-1"]["normal"]["base"]["packages"] == every
    assert "base" not in objects(files, "nodes")["node-1"]["normal"]


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


def test_a_user_is_what_the_spec_says() -> None:
    files = render(golden("research"))
    ada = objects(files, "data_bags/users")["ada"]
    assert (ada["uid"], ada["gid"], ada["groups"], ada["shell"]) == (10001, 10001, ["engineers"], "/bin/bash")
    engineers = objects(files, "data_bags/groups")["engineers"]
    assert (engineers["gid"], engineers["sudo"], engineers["members"]) == (5001, True, ["ada"])


def test_whoever_sets_machines_up_may_log_in() -> None:
    base = environment(golden("research"))["default_attributes"]["base"]
    assert base["login_groups"] == ["causeway", "engineers"]
    assert base["sudo_groups"] == ["engineers"]


# -- Storage -----------------------------------------------------------------------------------------------


def test_file_systems_have_ids_once_they_are_made() -> None:
    cluster = golden("research")

    def home(found: dict[str, Any]) -> dict[str, Any]:
        sites = found["default_attributes"]["storage"]["sites"]
        mount: dict[str, Any] = next(each for each in sites["us-west-2"]["mounts"] if each["path"] == "/home")
        return mount

    before = home(objects(render(cluster), "environments")["research"])
    assert (before["kind"], before["file_system"], before["access_point"]) == ("efs", None, None)
    after = home(environment(cluster))
    assert re.fullmatch("fs-[0-9a-f]{17}", after["file_system"])
    assert re.fullmatch("fsap-[0-9a-f]{17}", after["access_point"])


def test_an_export_names_its_node_and_the_sites_that_mount_it() -> None:
    sites = environment(golden("research"))["default_attributes"]["storage"]["sites"]
    [home, results] = sites["rack-a"]["exports"]
    assert (home["node"], home["clients"]) == ("storage-a", ["10.200.0.0/21"])
    # us-west-2 mounts its own, and makes volumes on this one.
    assert results["clients"] == ["10.1.0.0/16", "10.2.0.0/16", "10.200.0.0/21"]
    assert sites["rack-b"]["exports"] == []


# -- Ruby --------------------------------------------------------------------------------------------------

ruby = pytest.mark.skipif(shutil.which("ruby") is None, reason="needs the package ruby")

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


def written(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def ran(*command: str) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}"
    return done.stdout


@ruby
@pytest.mark.parametrize("scenario", scenarios())
def test_ruby_finds_nothing_wrong(scenario: str, tmp_path: Path) -> None:
    files = {path: text for path, text in render(golden(scenario)).items() if path.endswith(".rb")}
    assert set(files) == {"Policyfile.rb", "client.rb", "handlers/run_report.rb"}
    written(tmp_path, files)
    for path in files:
        assert ran("ruby", "-wc", str(tmp_path / path)) == "Syntax OK\n"


@ruby
def test_the_policyfile_says_what_roles_and_environment_say(tmp_path: Path) -> None:
    cluster = golden("research")
    files = render(cluster, outputs_for(cluster))
    written(tmp_path, {**files, "policy.rb": POLICY})
    told = json.loads(ran("ruby", str(tmp_path / "policy.rb"), str(tmp_path / "Policyfile.rb")))
    assert told["name"] == "research"
    assert told["default"] == environment(cluster)["default_attributes"]
    assert set(told["named"]) == set(objects(files, "roles"))
    assert told["named"]["gpu-worker-pascal"] == [
        "base", "storage", "gpu", "container_runtime", "kubernetes::worker",
    ]  # fmt: skip
    assert told["paths"] == {name: f"../../../cookbooks/{name}" for name in cookbooks.versions()}


@ruby
@pytest.mark.parametrize("case", ["fine", "why", "early"])
def test_a_run_leaves_its_report(case: str, tmp_path: Path) -> None:
    repository = tmp_path / "chef"
    written(repository, render(golden("minimal")))
    written(tmp_path, {"lib/chef/handler.rb": CHEF, "run.rb": HANDLER})
    if case == "fine":
        (repository / "inputs").write_text("abc\n")
    given = tmp_path / "var" / "report.json"
    report = given.with_name("why-run.json") if case == "why" else given
    ran("ruby", str(tmp_path / "run.rb"), str(tmp_path / "lib"), str(repository), str(given), case)
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
