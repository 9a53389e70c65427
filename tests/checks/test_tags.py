"""NAME007 counts the tags that a group really has."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks.breaking import CASES, Findings

from infra.catalogue.limits import TAGS_PER_RESOURCE
from infra.load import load
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

WEST = "regions: {us-west-2: {max: 4, zones: [us-west-2b]}}"
POOLS = {
    "cpu": "image: cpu, instance_types: [m6i.xlarge]",
    "gpu": "image: gpu, instance_types: [g5.xlarge], taints: [{key: nvidia.com/gpu}]",
    "slices": "image: gpu, instance_types: [g5.xlarge], gpus: {time_slices: 4}",
    "mig": "image: nvswitch, instance_types: [p4d.24xlarge], efa: true, placement_group: cluster,"
    " gpus: {mig: 3g.20gb}",
}


def spec(pool: str, labels: int) -> str:
    written = ", ".join(f"example.org/label-{number}: x" for number in range(labels))
    return f"owner: lab\npools: {{tried: {{{POOLS[pool]}, labels: {{{written}}}, {WEST}}}}}"


def tags(file: Path) -> int:
    cluster, _ = resolve(load(file).spec, Lock(), "case")
    [group] = next(pool for pool in cluster.pools if pool.name == "tried").groups
    # The module adds the name.
    return len({"Name", *cluster.tags, *group.tags, *group.autoscaler_tags})


@pytest.mark.parametrize("pool", POOLS)
def test_a_group_may_have_as_many_tags_as_aws_takes_and_no_more(pool: str, tmp_path: Path) -> None:
    file = tmp_path / "case.yaml"
    file.write_text(f"{spec(pool, 0)}\nextends: {CASES / 'good.yaml'}\n")
    room = TAGS_PER_RESOURCE - tags(file)
    findings = Findings(tmp_path)
    assert findings.of(spec(pool, room)) == []
    assert tags(file) == TAGS_PER_RESOURCE
    assert [problem.code for problem in findings.of(spec(pool, room + 1))] == ["NAME007"]
