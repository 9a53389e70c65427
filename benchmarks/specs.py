"""Specs of any size, as a person would write them: ``python -m benchmarks.specs 30 50 1000 5000``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Final

from infra.catalogue import regions as catalogue


@dataclass(frozen=True, slots=True)
class Size:
    """How many there are of each."""

    regions: int
    sites: int
    pools: int
    nodes: int


SIZES: Final = {"1x": Size(3, 1, 10, 50), "10x": Size(10, 7, 100, 500), "100x": Size(30, 50, 1000, 5000)}
"""Pools and nodes grow by the factor; links (a region and a site) and peerings (pairs of regions) by more."""

GROUPS_A_POOL: Final = 2
MOST_QUEUED: Final = 60
"""Kueue tells 64 kinds of machines apart; with more pools there are no queues."""
_FIRST_LAN: Final = IPv4Network("10.192.0.0/23")

_KINDS: Final = (
    ("cpu", ("m5.4xlarge", "c5.4xlarge"), "{kind: mixed, base: 1, on_demand_percent: 10}"),
    ("gpu", ("g5.12xlarge",), "spot"),
    ("gpu", ("g4dn.4xlarge", "g4dn.8xlarge"), "on-demand"),
)


def big(regions: int, sites: int, pools: int, nodes: int) -> str:
    """A sound spec with so many AWS regions, physical sites, node pools and physical nodes, as YAML.

    Each pool runs in two regions; each site has a gateway, and a VPN connection to each region. At most as
    many regions as the catalogue has, 1,000 sites, and 500 nodes a site.
    """
    names = _regions(regions)
    return "\n".join(
        [*_head(pools), "sites:", *_sites(sites, nodes), *_aws(names), *_images(), *_pools(pools, names)]
    )


def _regions(count: int) -> tuple[str, ...]:
    """Regions of the commercial partition with three zones."""
    fit = [name for name in catalogue.names() if (found := catalogue.find(name)) and found.partition == "aws"]
    if count > len(fit):
        raise ValueError(f"the catalogue has {len(fit)} regions")
    ordered = sorted(
        fit, key=lambda name: (not name.startswith(("us-west-2", "us-east-1", "eu-west-1")), name)
    )
    return tuple(ordered[:count])


def _head(pools: int) -> Iterator[str]:
    yield "version: 1"
    yield "name: big"
    yield "domain: big.internal"
    yield "owner: platform@lab.example"
    yield "kubernetes:"
    yield "  pods: {prefix: 10}"
    if pools > MOST_QUEUED:
        yield "  addons: {kueue: {enabled: false}}"


def _sites(count: int, nodes: int) -> Iterator[str]:
    for number in range(count):
        lan = IPv4Network((int(_FIRST_LAN.network_address) + number * _FIRST_LAN.num_addresses, 23))
        yield f"  rack-{number:03}:"
        yield "    kind: physical"
        yield f"    cidr: {lan}"
        yield f"    gateway: {{addresses: [198.51.{100 + number // 250}.{number % 250 + 1}]}}"
        yield "    nodes:"
        yield f"      gateway-{number:03}:"
        yield f"        {{address: {lan[2]}, cpus: 8, memory: 16 GiB, roles: [site-gateway]}}"
        for index in range(nodes // count + (number < nodes % count) - 1):
            mac = f"0c:c4:7a:{number % 256:02x}:{index // 256:02x}:{index % 256:02x}"
            yield f"      titan-{number:03}-{index:03}:"
            yield f'        {{address: {lan[10 + index]}, mac: "{mac}", rack: row-{index // 20},'
            yield "         cpus: 40, memory: 256 GiB, gpus: {model: titan-x-pascal, count: 4},"
            yield "         disks: [{device: /dev/sda, size: 480 GiB, use: system},"
            yield "                 {device: /dev/nvme0n1, size: 2 TiB}]}"


def _aws(names: tuple[str, ...]) -> Iterator[str]:
    for order, name in enumerate(names):
        yield f"  {name}: {{kind: aws, {'primary: true' if order == 0 else f'overflow: {order}'}}}"


def _images() -> Iterator[str]:
    yield "images:"
    yield "  cpu: {ubuntu: 24.04}"
    yield "  gpu: {ubuntu: 22.04, root_disk: 100 GiB, gpu: {driver: 580, cuda: 12.8}}"


def _pools(count: int, names: tuple[str, ...]) -> Iterator[str]:
    yield "pools:"
    for number in range(count):
        image, types, market = _KINDS[number % len(_KINDS)]
        yield f"  {image}-{number:04}:"
        yield f"    image: {image}"
        yield f"    instance_types: [{', '.join(types)}]"
        yield f"    market: {market}"
        yield f"    labels: {{lab.example/team: team-{number % 40}}}"
        if image == "gpu":
            yield "    taints: [{key: nvidia.com/gpu, value: present}]"
        yield "    regions:"
        fit = [name for name in names if all(catalogue.offered(each, name) for each in types)]
        for turn in range(min(GROUPS_A_POOL, len(fit))):
            yield f"      {fit[(number + turn) % len(fit)]}: {{max: 2}}"
    yield ""


def main() -> None:
    """Print one."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("regions", "sites", "pools", "nodes"):
        parser.add_argument(name, type=int)
    arguments = parser.parse_args()
    sys.stdout.write(big(arguments.regions, arguments.sites, arguments.pools, arguments.nodes))


if __name__ == "__main__":
    main()
