"""One source a path, and the nearest one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from strategies.reading import read, resolved
from strategies.specs import Plain, specs

from infra.model import Cluster
from infra.model.platform import EfsMount, Mount, NfsMount, S3Mount
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

NODE = {"cpus": 8, "memory": "16 GiB"}


def rack(number: int, *, joined: bool = True) -> Plain:
    """A site with a server; without a gateway it is an island."""
    nodes = {f"server-{number}": {"address": f"192.168.{number}.3", **NODE, "roles": ["nfs-server"]}}
    gateway: Plain = {}
    if joined:
        nodes[f"gateway-{number}"] = {"address": f"192.168.{number}.2", **NODE, "roles": ["site-gateway"]}
        gateway = {"gateway": {"addresses": [f"198.51.100.{number}"]}}
    return {"kind": "physical", "cidr": f"192.168.{number}.0/24", "nodes": nodes, **gateway}


def cluster(storage: Plain, **changes: Any) -> Cluster:
    """Two racks and two regions, all joined."""
    sites = {
        "rack-1": rack(1),
        "rack-2": rack(2),
        "us-west-2": {"kind": "aws", "primary": True},
        "us-east-1": {"kind": "aws"},
    }
    return resolved(**{"sites": sites, "images": {"cpu": {}}, "storage": storage, **changes})


def sources(lab: Cluster, path: str) -> dict[str, str]:
    """Site → ``nfs home``, of one path; sites that do not mount it are left out."""
    return {
        site: f"{mount.kind} {mount.name}"
        for site, mounts in lab.storage.mounts.items()
        for mount in mounts
        if mount.path == path
    }


NFS_1 = {"site": "rack-1", "export": "/srv/home", "path": "/home"}
NFS_2 = {"site": "rack-2", "export": "/srv/home", "path": "/home"}
EVERYWHERE = ("rack-1", "rack-2", "us-west-2", "us-east-1")


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        ({}, {}),
        ({"nfs": {"one": NFS_1}}, dict.fromkeys(EVERYWHERE, "nfs one")),
        (
            {"nfs": {"one": NFS_1, "two": NFS_2}},
            {"rack-1": "nfs one", "rack-2": "nfs two", "us-west-2": "nfs one", "us-east-1": "nfs one"},
        ),
        (
            {"nfs": {"one": NFS_1}, "efs": {"home": {"path": "/home"}}},
            {"rack-1": "nfs one", "rack-2": "nfs one", "us-west-2": "efs home", "us-east-1": "efs home"},
        ),
        (
            {"nfs": {"one": NFS_1}, "efs": {"home": {"path": "/home", "regions": ["us-east-1"]}}},
            {"rack-1": "nfs one", "rack-2": "nfs one", "us-west-2": "nfs one", "us-east-1": "efs home"},
        ),
        ({"efs": {"home": {"path": "/home"}}}, {"us-west-2": "efs home", "us-east-1": "efs home"}),
        ({"s3": {"data": {"path": "/home"}}}, dict.fromkeys(EVERYWHERE, "s3 data")),
        ({"s3": {"data": {}}}, {}),
    ],
)
def test_the_nearest_source_wins(storage: Plain, expected: dict[str, str]) -> None:
    assert sources(cluster(storage), "/home") == expected


def test_an_island_s_files_stay_there() -> None:
    sites = {
        "rack-1": rack(1, joined=False),
        "rack-2": rack(2),
        "us-west-2": {"kind": "aws"},
    }
    lab = cluster({"nfs": {"one": NFS_1}}, sites=sites)
    assert sources(lab, "/home") == {"rack-1": "nfs one"}


def test_without_a_mesh_sites_do_not_reach_each_other() -> None:
    lab = cluster({"nfs": {"one": NFS_1}}, network={"site_mesh": False})
    assert set(sources(lab, "/home")) == {"rack-1", "us-west-2", "us-east-1"}


def test_only_regions_with_a_line_mount_from_a_site() -> None:
    sites = {
        "rack-1": rack(1),
        "us-west-2": {"kind": "aws", "primary": True},
        "us-east-1": {"kind": "aws", "vpn": []},
    }
    lab = cluster({"nfs": {"one": NFS_1}}, sites=sites)
    assert set(sources(lab, "/home")) == {"rack-1", "us-west-2"}


def test_an_only_access_point_is_the_way_in() -> None:
    one = {"homes": {"path": "/homes"}}
    two = {**one, "scratch": {"path": "/scratch"}}
    for points, expected in (({}, None), (one, "homes"), (two, None)):
        lab = cluster({"efs": {"home": {"path": "/home", "access_points": points}}})
        [mount] = lab.storage.mounts["us-west-2"]
        assert isinstance(mount, EfsMount)
        assert mount.access_point == expected


def test_mounts_say_where_to_go() -> None:
    lab = cluster(
        {
            "nfs": {"one": {**NFS_1, "read_only": True}},
            "s3": {"data": {"path": "/data", "region": "us-east-1", "name": "lab-data"}},
        }
    )
    assert lab.storage.mounts["rack-2"] == (
        S3Mount("/data", "data", False, "lab-data", "us-east-1"),
        NfsMount("/home", "one", True, "server-1.lab.internal", "/srv/home"),
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(specs())
def test_each_path_has_one_source_and_each_export_the_clients_that_mount_it(spec: Plain) -> None:
    lab, _ = resolve(read(spec).spec, Lock(), "lab")
    storage = lab.storage
    blocks = {site.name: site.lan for site in lab.sites} | {region.name: region.vpc for region in lab.regions}
    assert set(storage.mounts) == set(blocks)
    for mounts in storage.mounts.values():
        paths = [mount.path for mount in mounts]
        assert paths == sorted(set(paths))
    for export in storage.nfs:
        for site, mounts in storage.mounts.items():
            inside = any(blocks[site].subnet_of(client) for client in export.clients)
            made_here = export.storage_class is not None and site == lab.regions[0].name
            assert inside == (_mounts(mounts, export.name) or made_here)
        # What a site exports it mounts itself, unless it exports something else there too.
        own = Counter(other.path for other in storage.nfs if other.site == export.site)
        assert own[export.path] > 1 or _mounts(storage.mounts[export.site], export.name)


def _mounts(mounts: tuple[Mount, ...], name: str) -> bool:
    return any(mount.kind == "nfs" and mount.name == name for mount in mounts)
