"""`invoke upgrade`: an apply of this version, made into one of an older version, and of a newer one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from invoking import Project, on_embedded_aws

from infra import __version__

SPEC = """\
version: 1
name: lab
domain: lab.internal
aws: {embedded: true}
kubernetes: {control_plane: {count: 1}}
autoscaler: {image: "registry.lab.example/causeway/autoscaler:1.0.0"}
sites:
  rack:
    kind: physical
    cidr: 10.120.0.0/22
    gateway: {addresses: [198.51.100.30], node: edge}
    nodes: {edge: {address: 10.120.0.2, cpus: 4, memory: 8 GiB, roles: [site-gateway]}}
  us-west-2: {kind: aws, primary: true, zones: [us-west-2a]}
images: {cpu: {ubuntu: 24.04}}
pools:
  cpu: {image: cpu, instance_types: [m6i.xlarge], regions: {us-west-2: {max: 4}}}
  gone: {image: cpu, instance_types: [m6i.large], regions: {us-west-2: {max: 4}}}
"""


def upgraded(project: Project, code: int) -> dict[str, Any]:
    out, _ = project.invoke("upgrade", "--json", "--detailed-exitcode", code=code)
    found: dict[str, Any] = json.loads(out)
    return found


def edit(file: Path, change: Callable[[Any], None]) -> None:
    values = json.loads(file.read_text(encoding="utf-8"))
    change(values)
    file.write_text(json.dumps(values), encoding="utf-8")


def older(values: Any) -> None:
    """As 0.9.0 would have recorded it: its cookbooks were others, its policies allowed less."""
    values["causeway"] = "0.9.0"
    values["shipped"]["cookbooks"] = "00"
    values["actions"]["apply"].remove("ec2:CreateVpc")


def with_older_kubernetes(values: Any) -> None:
    values["kubernetes"]["release"] = "1.36.0"


def test_from_an_older_version_and_a_newer_one(tmp_path: Path) -> None:
    with on_embedded_aws(tmp_path, "lab", SPEC) as (project, _):
        _, err = project.invoke("upgrade", code=1)
        assert "invoke plan --env lab" in err
        project.invoke("apply", "--yes")
        same = upgraded(project, 0)
        assert (same["from"], same["to"], same["steps"]) == (__version__, __version__, [])

        box = "box: {address: 10.120.0.3, cpus: 4, memory: 8 GiB, roles: [site-gateway]}, "
        project.write(SPEC.replace("nodes: {", "nodes: {" + box))
        one_more = {each["step"]: each for each in upgraded(project, 2)["steps"]}
        assert "images" not in one_more, "no image has a rack's machine in it"
        assert one_more["machines"]["commands"] == ["invoke converge --env lab --site rack"]

        applied = tmp_path / "build/lab/state/applied"
        edit(applied / "applied.json", older)
        edit(applied / "files/cluster.json", with_older_kubernetes)
        gateway = next((applied / "files/strongswan").rglob("*.conf"))
        manifest = next((applied / "files/kubernetes/after").rglob("*.yaml"))
        for file in (gateway, manifest):
            file.write_text("# as 0.9.0 had it\n", encoding="utf-8")
        project.write(SPEC.replace(SPEC[SPEC.index("  gone:") :], ""))
        found = upgraded(project, 2)
        assert found["from"] == "0.9.0"
        assert found["spec_changes"]
        assert any('node_pool["gone"]' in each for each in found["destroyed"])
        assert found["counts"]["delete"] == len(found["destroyed"]) > 0
        steps = {each["step"]: each for each in found["steps"]}
        there = "policies apply container-images gateways kubernetes cluster machines images"
        assert list(steps) == there.split()
        assert steps["policies"]["why"] == ["apply: ec2:CreateVpc"]
        assert steps["machines"]["commands"][0] == "invoke converge --env lab --site rack"
        assert "cookbooks" in steps["images"]["why"]
        assert "changed: " + gateway.relative_to(applied / "files").as_posix() in steps["gateways"]["why"]

        edit(applied / "applied.json", lambda values: values.update(causeway="99.0.0"))
        out, err = project.invoke("upgrade")
        assert out.count("DESTROYED") == len(found["destroyed"])
        assert "99.0.0" in err
