"""Clusters to draw: the shipped environments, and made-up ones of any size."""

from __future__ import annotations

from pathlib import Path

from infra.catalogue import regions as catalogue
from infra.drive import dot
from infra.files import Files
from infra.load import load
from infra.model import Cluster
from infra.render import topology
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

SHIPPED = ("minimal", "local", "research")

CHANGES = {
    "us-west-2/cpu": "change",
    "us-east-1/gpu-g5": "add",
    "us-west-2/gpu-p5": "replace",
    "eu-west-1/gpu-p2": "destroy",
    "link/rack-a-us-west-2": "add",
    "us-east-1/subnets/private-us-east-1d": "add",
    "eu-central-1": "destroy",
}
"""What a plan for the research environment might do; the last one is not in its spec."""


def draw(cluster: Cluster, changes: dict[str, str] | None = None) -> Files:
    """The page and the SVG."""
    return topology.render(cluster, changes, dot.svg(topology.dot_source(cluster, changes)))


def shipped(name: str) -> Cluster:
    """A shipped environment, with a fresh lock."""
    return resolve(load(Path(f"environments/{name}.yaml")).spec, Lock(), name)[0]


def made_up(folder: Path, regions: int, sites: int, more: str = "") -> Cluster:
    """So many regions and physical sites, a pool in each region and three nodes at each site."""
    commercial = [
        name for name in catalogue.names() if (region := catalogue.find(name)) and region.partition == "aws"
    ]
    names = sorted(commercial, key=lambda name: (name != "eu-west-1", name))[:regions]
    assert len(names) == regions
    lines = ["version: 1", "name: made-up", "domain: made-up.internal", "supernet: 10.0.0.0/8", "sites:"]
    for index in range(sites):
        lan = f"10.250.{index * 2}"
        lines.append(
            f"  rack-{index:02}: {{kind: physical, cidr: {lan}.0/23,"
            f" gateway: {{addresses: [198.51.100.{index + 1}], asn: {65000 + index}}}, nodes: {{"
            f"gw-{index:02}: {{address: {lan}.2, cpus: 8, memory: 16 GiB, roles: [site-gateway]}},"
            f" titan-{index:02}a: {{address: {lan}.11, cpus: 32, memory: 128 GiB,"
            " gpus: {model: titan-x-pascal, count: 4}},"
            f" titan-{index:02}b: {{address: {lan}.12, cpus: 32, memory: 128 GiB,"
            " gpus: {model: titan-x-pascal, count: 4}}}}"
        )
    lines += [f"  {name}: {{kind: aws, primary: {str(name == names[0]).lower()}}}" for name in names]
    lines += [
        "images: {cpu: {}}",
        "pools:",
        "  cpu:",
        "    image: cpu",
        "    instance_types: [m5.large, m6i.large]",
    ]
    lines += ["    regions:", *(f"      {name}: {{max: 4}}" for name in names), more]
    path = folder / "made-up.yaml"
    path.write_text("\n".join(lines))
    return resolve(load(path).spec, Lock(), "made-up")[0]
