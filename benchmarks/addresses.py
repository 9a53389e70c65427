"""How long address planning takes: ``python -m benchmarks.addresses [--json]``.

Each plan has sites of 31 blocks (a VPC of 4,096 addresses, ten zones of three subnets) in 10.0.0.0/8. Timed,
best of three: a first plan, the same again from its lock, and the
lock file's way to text and back.
"""

from __future__ import annotations

import argparse
import json
from ipaddress import IPv4Network

from benchmarks.measure import Measured, call
from infra.resolve.allocate_blocks import Request, Root, allocate
from infra.resolve.lockfile import Lock, dump, parse

COUNTS = (1_000, 10_000, 100_000)
SUBNETS = 30


def requests(count: int) -> list[Request]:
    """So many requests: each site a block with thirty subnets."""
    found = []
    for number in range(count // (SUBNETS + 1) + 1):
        site = f"sites/site-{number}"
        found.append(Request(site, "supernet", prefix=20))
        found += [
            Request(f"{site}/subnets/{tier}/zone-{zone}", site, prefix=prefix)
            for tier, prefix in (("private", 25), ("public", 26), ("pods", 26))
            for zone in range(SUBNETS // 3)
        ]
    return found[:count]


def measure(count: int) -> dict[str, Measured]:
    """What each step takes for a plan of ``count`` blocks."""
    roots = [Root("supernet", IPv4Network("10.0.0.0/8"))]
    wanted = requests(count)
    plan = allocate(roots, wanted, {})
    assert not plan.failures
    assert len(plan.claims) == count
    text = dump(Lock(blocks=plan.lock))
    return {
        "first": call(lambda: allocate(roots, wanted, {})),
        "from_lock": call(lambda: allocate(roots, wanted, plan.lock)),
        "dump": call(lambda: dump(Lock(blocks=plan.lock))),
        "parse": call(lambda: parse(text, "bench.lock.yaml")),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    figures = {count: {step: found.seconds for step, found in measure(count).items()} for count in COUNTS}
    if arguments.json:
        print(json.dumps({"benchmark": "addresses", "unit": "s", "blocks": figures}, indent=2))
        return
    print(f"{'blocks':>8} {'first':>9} {'from lock':>10} {'dump':>9} {'parse':>9}")
    for count, row in figures.items():
        first, from_lock, dumped, parsed = row.values()
        print(f"{count:8,} {first:8.3f}s {from_lock:9.3f}s {dumped:8.3f}s {parsed:8.3f}s")


if __name__ == "__main__":
    main()
