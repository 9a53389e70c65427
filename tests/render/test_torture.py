"""Text that breaks careless quoting arrives at Terraform as it was written."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from golden_folders import GOLDEN, SPEC
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from render.tools import write
from strategies.reading import read
from strategies.specs import Plain, specs

from infra.drive.engine import find_engine
from infra.files import Files
from infra.load import load
from infra.model import Cluster
from infra.render.terraform import hcl, render
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

FOLDER = GOLDEN / "torture"
NASTY = (
    'it\'s "so" ${var.environment} %{ if true }x%{ endif } $${a} %%{b} \\ \\n <&> ünï 日本 🦀\n'
    "line 2\ttab #{c} {{ d }} {% e %}"
)

WRITABLE = st.characters(codec="utf-8", exclude_categories=["Cc"], include_characters="\n\t\r")
"""Control characters beside these three do not come out of a YAML file."""


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return resolve(load(FOLDER / SPEC).spec, Lock(), "torture")[0]


@pytest.fixture(scope="module")
def files(cluster: Cluster) -> Files:
    return render(cluster)


@pytest.fixture(scope="module")
def values(files: Files) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files["terraform.tfvars.json"])
    return found


def terraform(folder: Path, *arguments: str, given: str | None = None) -> str:
    """Terraform's output. Fails with what it said."""
    environment = {**os.environ, "TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"}
    done = subprocess.run(
        [*find_engine().argv, *arguments],
        cwd=folder, input=given, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def console(folder: Path, *expressions: str) -> list[Any]:
    """What Terraform makes of some expressions. Given on stdin, it tells only the last: so they go as one."""
    # base64, as the console prints a string as an HCL literal.
    out = terraform(folder, "console", given=f"base64encode(jsonencode([{', '.join(expressions)}]))\n")
    found: list[Any] = json.loads(base64.b64decode(out.strip().strip('"')))
    return found


def test_what_was_written_is_in_the_values(values: dict[str, Any]) -> None:
    assert values["tags"]["owner"] == NASTY
    assert values["dns"]["records"]["no.no.y.internal TXT"]["values"] == [NASTY, "no", "022", ""]
    pool = values["regions"]["true"]["node_pools"]["for"]
    assert pool["user_data"]["labels"]["mode"] == "022"
    assert pool["autoscaler_tags"]["k8s.io/cluster-autoscaler/node-template/taint/no"] == "022:NoSchedule"
    assert values["regions"]["null"]["images"]["no"]["name"] == NASTY


def test_terraform_reads_the_values_as_they_were_written(
    files: Files, values: dict[str, Any], tmp_path: Path
) -> None:
    """The rendered root, whole, with every value that it has."""
    write(tmp_path, files)
    terraform(tmp_path, "init", "-input=false", "-no-color")
    terraform(tmp_path, "validate", "-no-color")
    tags, identity, regions, records = console(
        tmp_path, "var.tags", "var.identity", "var.regions", "var.dns.records"
    )
    assert tags == values["tags"]
    assert identity == values["identity"]
    assert regions == values["regions"]
    assert records == values["dns"]["records"]


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(WRITABLE), min_size=10, max_size=60))
def test_a_literal_says_what_the_text_says(tmp_path: Path, texts: list[str]) -> None:
    lines = "".join(f"    {hcl(text)},\n" for text in [*texts, NASTY])
    write(tmp_path, {"main.tf": f"locals {{\n  texts = [\n{lines}  ]\n}}\n"})
    # Terraform normalises strings (language reference, "Strings": NFC).
    [found] = console(tmp_path, "local.texts")
    assert found == [unicodedata.normalize("NFC", text) for text in [*texts, NASTY]]


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(specs())
def test_any_spec_renders_to_files_in_terraforms_own_style(tmp_path: Path, spec: Plain) -> None:
    cluster, _ = resolve(read(spec).spec, Lock(), "lab")
    files = render(cluster)
    for path, text in files.items():
        if path.endswith(".tf") and "/" not in path:
            assert terraform(tmp_path, "fmt", "-", given=text) == text, path
    values = json.loads(files["terraform.tfvars.json"])
    assert json.dumps(values, indent=2, ensure_ascii=False) + "\n" == files["terraform.tfvars.json"]
    assert set(values["regions"]) == {region.key for region in cluster.regions}
    wanted = {(cluster.region(group.site).key, pool.name) for pool in cluster.pools for group in pool.groups}
    pools = {(key, name) for key, region in values["regions"].items() for name in region["node_pools"]}
    assert pools == wanted
    for region in cluster.regions:
        subnets = values["regions"][region.key]["network"]["subnets"]
        assert {name: each["block"] for name, each in subnets.items()} == {
            each.name: str(each.block) for each in region.subnets
        }
