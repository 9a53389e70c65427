"""A whole spec, resolved."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import SpecError
from infra.load import load
from infra.model import Cluster
from infra.model.places import RetiredRegion
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock, without_regions
from infra.schema.defaults import node_prefix


def test_the_lock_settles_everything() -> None:
    spec = load(Path("environments/research.yaml")).spec
    first, lock = resolve(spec, Lock(), "research")
    second, again = resolve(spec, lock, "research")
    assert again == lock
    assert second == first
    assert {block.origin for block in second.network.blocks} <= {"stated", "kept"}


@pytest.mark.parametrize(("pods", "prefix"), [(8, 28), (64, 25), (110, 24), (128, 24), (129, 23), (500, 22)])
def test_a_node_has_twice_the_addresses_of_its_pods(pods: int, prefix: int) -> None:
    assert node_prefix(pods) == prefix


def test_a_master_without_an_image_gets_one_that_fits_its_type(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    text = Path("environments/minimal.yaml").read_text(encoding="utf-8")
    path.write_text(
        text.replace(
            "cpu: {ubuntu: 24.04}", "arm: {ubuntu: 24.04, architecture: arm64}\n  cpu: {ubuntu: 24.04}"
        ),
        encoding="utf-8",
    )
    cluster, _ = resolve(load(path).spec, Lock(), "lab")
    assert cluster.control_plane is not None
    assert {master.image for master in cluster.control_plane.masters} == {"cpu"}
    assert {gateway.image for gateway in cluster.access_gateways} == {"cpu"}


LEAVING = """\
version: 1
name: lab
domain: lab.internal
sites:
  west: {{kind: aws, region: us-west-2, primary: true, zones: [{zones}]}}
  {other}
images: {{cpu: {{}}}}
access:
  ssh_nodes:
    login: {{instance_type: t3.medium, image: cpu, count: {nodes}}}
"""


def leaving(
    folder: Path,
    lock: Lock,
    *,
    zones: str = "us-west-2a, us-west-2b",
    other: str = "east: {kind: aws, region: us-east-1}",
    nodes: int = 2,
) -> tuple[Cluster, Lock]:
    path = folder / "lab.yaml"
    path.write_text(LEAVING.format(zones=zones, other=other, nodes=nodes), encoding="utf-8")
    return resolve(load(path).spec, lock, "lab")


def test_a_region_that_leaves_the_spec_is_retired_until_the_lock_forgets_it(tmp_path: Path) -> None:
    before, lock = leaving(tmp_path, Lock())
    assert before.retired == ()
    assert lock.regions == {"west": "us-west-2", "east": "us-east-1"}
    after, kept = leaving(tmp_path, lock, other="")
    assert after.retired == (RetiredRegion("east", "east", "us-east-1"),)
    assert kept.regions == lock.regions
    last, _ = leaving(tmp_path, without_regions(kept, ["east"]), other="")
    assert last.retired == ()


def test_a_site_under_another_name_is_a_new_one_beside_the_retired_one(tmp_path: Path) -> None:
    before, lock = leaving(tmp_path, Lock())
    after, _ = leaving(tmp_path, lock, other="ohio: {kind: aws, region: us-east-1}")
    assert [region.name for region in after.retired] == ["east"]
    assert after.region("ohio").vpc != before.region("east").vpc


def test_a_site_keeps_its_aws_region(tmp_path: Path) -> None:
    _, lock = leaving(tmp_path, Lock())
    with pytest.raises(SpecError) as caught:
        leaving(tmp_path, lock, other="east: {kind: aws, region: us-east-2}")
    assert [(problem.code, problem.path) for problem in caught.value.problems] == [("LOCK007", "sites.east")]


@pytest.mark.parametrize("zones", ["us-west-2b, us-west-2a", "us-west-2c, us-west-2b, us-west-2a"])
def test_nothing_moves_to_another_zone(tmp_path: Path, zones: str) -> None:
    def places(cluster: Cluster) -> dict[str, str]:
        return {each.hostname: each.subnet for each in cluster.instances}

    before, lock = leaving(tmp_path, Lock())
    after, _ = leaving(tmp_path, lock, zones=zones, nodes=3)
    assert set(after.region("west").nat.values()) == set(before.region("west").nat.values()) == {"us-west-2a"}
    assert places(before).items() <= places(after).items()


def test_the_order_of_zones_means_nothing(tmp_path: Path) -> None:
    first, lock = leaving(tmp_path, Lock())
    second, _ = leaving(tmp_path, lock, zones="us-west-2b, us-west-2a")
    assert first == second


def test_what_stood_in_a_zone_that_goes_moves_to_one_that_stays(tmp_path: Path) -> None:
    _, lock = leaving(tmp_path, Lock())
    after, kept = leaving(tmp_path, lock, zones="us-west-2b")
    assert after.region("west").nat == {"us-west-2b": "us-west-2b"}
    moved = {zone for owner, zone in kept.zones.items() if owner.startswith("sites/west/")}
    assert moved == {"us-west-2b"}


@pytest.mark.parametrize(("bucket", "issued"), [("{volumes: true}", True), ("{}", False)])
def test_pods_have_roles_where_a_bucket_is_their_volume(tmp_path: Path, bucket: str, issued: bool) -> None:
    """Without research, too."""
    path = tmp_path / "lab.yaml"
    text = Path("environments/minimal.yaml").read_text(encoding="utf-8")
    path.write_text(f"{text}\nstorage: {{s3: {{checkpoints: {bucket}}}}}\n", encoding="utf-8")
    cluster, _ = resolve(load(path).spec, Lock(), "lab")
    assert (cluster.web_identity is not None) is issued
    assert cluster.research is None
