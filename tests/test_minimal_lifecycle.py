"""The smallest shipped spec through a whole life, as a person drives it: real Terraform and its provider, the
embedded AWS. What larger ones add is in `tests/test_shipped_specs.py`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from benchmarks.lifecycle.project import Project
from infra.drive import localaws
from infra.drive.aws import Aws


def test_applied_it_has_no_changes_and_destroyed_it_is_gone(tmp_path: Path) -> None:
    project = Project.copied(tmp_path, "minimal")
    try:
        project.invoke("plan", "--detailed-exitcode", code=2)
        project.invoke("apply")
        assert blocks_in_aws(project) == blocks_by_spec(project)
        plan = json.loads(project.invoke("plan", "--json", "--detailed-exitcode"))
        assert (plan["changes"], plan["undeclared"]) == ([], [])
        project.invoke("destroy", "--confirm", "minimal")
        assert not any(project.inventory().values())
    finally:
        project.run("local.down")


def blocks_by_spec(project: Project) -> dict[str, str]:
    """VPCs and subnets by their AWS names: what the address plan gives them."""
    regions = json.loads((project.build / "cluster.json").read_text(encoding="utf-8"))["regions"]
    return {region["aws_name"]: region["vpc"] for region in regions} | {
        f"{region['aws_name']}-{subnet['name']}": subnet["block"]
        for region in regions
        for subnet in region["subnets"]
    }


def blocks_in_aws(project: Project) -> dict[str, str]:
    """The same, of what was created."""
    server = localaws.start(project.build / "state/aws", project.environment)
    ec2 = Aws({**os.environ, **localaws.environment(server)}).client("ec2", "us-west-2")
    named = [{"Name": "tag:Name", "Values": [f"{project.environment}*"]}]
    created = [
        *ec2.describe_vpcs(Filters=named)["Vpcs"],
        *ec2.describe_subnets(Filters=named)["Subnets"],
    ]
    return {tag["Value"]: one["CidrBlock"] for one in created for tag in one["Tags"] if tag["Key"] == "Name"}
