"""What a machine has to do at its first boot, with and without a baked image: ``python -m
benchmarks.first_boot``.

Chef on a virtual machine of ``tests/machines``, from nothing; and on one that ran the same roles as a bake
does and then booted. Bytes are what came in by its network, packages what dpkg has more, steps what Chef
changed of all that it looked at. The roles are those that need the distribution's archive alone: Kubernetes,
NVIDIA's driver and the ML stack come on top, and in an image as well. Needs what
tests/cookbooks/test_converge.py needs. In software emulation seconds mean little; what counts is how they
compare.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from machines import disk
from machines.site import Site
from qemu import Unavailable

MACHINE = "login"
RECIPES = "recipe[base],recipe[storage],recipe[container_runtime],recipe[ssh_node]"
_DISTRIBUTION = {"container_runtime": {"version": False}}
_RECEIVED = "/sys/class/net/eth0/statistics/rx_bytes"


@dataclass(frozen=True)
class FirstBoot:
    """What it took until a machine was one of its cluster's."""

    what: str
    mib: float
    """Received."""
    packages: int
    changed: int
    looked_at: int
    seconds: float


def measure(folder: Path) -> Iterator[FirstBoot]:
    """Without an image, then with one.

    Raises:
        Unavailable: There can be no machine here, or there is no Chef.
    """
    chef = disk.Chef.here()
    if chef is None:
        raise Unavailable("no CINC or Chef Infra Client: CHEF_CLIENT and CHEF_CLIENT_TREE name one")
    made_from = disk.disk(chef)
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    bare = Site(folder / "bare", key, chef)
    try:
        bare.up(MACHINE, made_from)
        yield first_boot(bare, "without an image")
    finally:
        bare.down()
    baked = Site(folder / "baked", key, chef)
    try:
        vm = baked.up(MACHINE, made_from)
        baked.chef(MACHINE, {**_DISTRIBUTION, "causeway": {"baking": True}}, RECIPES)
        vm.shut_down()
        vm.start(os.getpid())
        yield first_boot(baked, "with a baked image")
    finally:
        baked.down()


def first_boot(site: Site, what: str) -> FirstBoot:
    """Chef on a machine that was just started."""
    received, packages, began = _received(site), _packages(site), time.monotonic()
    report = site.chef(MACHINE, {**_DISTRIBUTION, "causeway": {"baking": False}}, RECIPES)
    seconds = time.monotonic() - began
    mib = (_received(site) - received) / (1 << 20)
    return FirstBoot(what, mib, _packages(site) - packages, len(report["updated"]), report["total"], seconds)


def _received(site: Site) -> int:
    return int(site.run(MACHINE, f"cat {_RECEIVED}"))


def _packages(site: Site) -> int:
    return int(site.run(MACHINE, "dpkg-query -f '.\\n' -W | wc -l"))


def main() -> int:
    """Print a table."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            rows = list(measure(Path(folder)))
        except Unavailable as fault:
            sys.stderr.write(f"{fault}\n")
            return 1
    sys.stdout.write("| first boot | received | packages | steps | time |\n|---|---:|---:|---:|---:|\n")
    for row in rows:
        steps = f"{row.changed} of {row.looked_at}"
        sys.stdout.write(
            f"| {row.what} | {row.mib:.1f} MiB | {row.packages} | {steps} | {row.seconds:.0f} s |\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
