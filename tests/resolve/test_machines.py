"""Images, from the reference: which one a group runs, and which kernel modules it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.load import load
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock
from infra.schema import Spec


@pytest.fixture(scope="module")
def spec() -> Spec:
    return load(Path("environments/research.yaml")).spec


def test_a_baked_image_is_used_where_the_lock_has_one(spec: Spec) -> None:
    cluster, _ = resolve(spec, Lock(images={"gpu": {"us-west-2": "ami-0123456789abcdef0"}}), "research")
    [pool] = [pool for pool in cluster.pools if pool.name == "gpu-p3"]
    assert [group.image_id for group in pool.groups] == ["ami-0123456789abcdef0", None, None]


def test_an_image_s_kernel_modules_suit_the_ssh_nodes_that_run_it(spec: Spec) -> None:
    access, login = spec.access, spec.access.ssh_nodes["login"]
    volta = login.model_copy(update={"image": "gpu-nvswitch", "instance_type": "p3.2xlarge"})
    more = access.model_copy(update={"ssh_nodes": {**access.ssh_nodes, "volta": volta}})
    cluster, _ = resolve(spec.model_copy(update={"access": more}), Lock(), "research")
    gpu = cluster.image("gpu-nvswitch").gpu
    assert gpu is not None
    assert not gpu.open_kernel_modules
