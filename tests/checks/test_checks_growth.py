"""The work grows with the spec, not with its square: counted in calls, which no busy machine changes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from infra.checks import examine
from infra.load import load


def spec(factor: int) -> str:
    """Sites, nodes, pools and users, each ``10 * factor``; nothing in it is worth a finding."""
    lines = ["version: 1", "name: big", "domain: big.internal", "sites:"]
    lines.append("  us-west-2: {kind: aws, subnets: {private: 18}, vpn: []}")
    for site in range(10 * factor):
        lines += [
            f"  rack-{site}:",
            "    kind: physical",
            f"    cidr: 10.{128 + site // 256}.{site % 256}.0/24",
            f"    gateway: {{addresses: [198.51.{site // 250}.{site % 250 + 1}]}}",
            "    nodes:",
            f"      gate-{site}:",
            f"        {{address: 10.{128 + site // 256}.{site % 256}.1, cpus: 2, memory: 4 GiB,",
            "         roles: [site-gateway]}",
        ]
    # Tunnels between all sites are as many as the square, whoever counts them.
    # Queues tell 64 pools apart.
    lines += ["kubernetes: {addons: {kueue: {enabled: false}}}"]
    lines += ["network: {site_mesh: false}", "images: {cpu: {}}", "pools:"]
    for pool in range(10 * factor):
        lines.append(
            f"  pool-{pool}: {{image: cpu, instance_types: [m6i.large, m5.large], labels: {{team: a{pool}}},"
        )
        lines.append("    regions: {us-west-2: {max: 2}}}")
    lines += ["access:", "  groups: {lab: {}}", "  users:"]
    lines += [f"    user-{user}: {{vpn: false, groups: [lab]}}" for user in range(10 * factor)]
    lines.append("waivers: [{code: ACC001, reason: keys would be another matter}]")
    return "\n".join(lines)


def calls(path: Path, factor: int) -> int:
    """How many calls the checks take for a spec of that size."""
    path.write_text(spec(factor))
    loaded = load(path)
    assert {problem.code for problem in loaded.problems} == {"ACC001"}
    count = 0

    def step(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(step)
    try:
        examine(loaded.spec, loaded.position)
    finally:
        sys.setprofile(before)
    return count


def test_ten_times_the_spec_is_about_ten_times_the_work(tmp_path: Path) -> None:
    small, large = calls(tmp_path / "small.yaml", 2), calls(tmp_path / "large.yaml", 20)
    assert 5 * small < large < 12 * small
