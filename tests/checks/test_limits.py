"""What AWS refuses in the middle of an apply: quotas that a spec can pass, and what is just within them."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks.breaking import Findings

from infra.catalogue import limits, quotas
from infra.load import load
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock


def codes(findings: Findings, spec: str) -> set[tuple[str, str]]:
    return {(problem.code, problem.path) for problem in findings.of(spec)}


def blocks(count: int) -> str:
    return ", ".join(f"203.0.113.{n}/32" for n in range(count))


def ssh_node(*stated: str) -> str:
    return (
        "access: {ssh_nodes: {login: {instance_type: t3.large, image: cpu, public: true, "
        f"ssh_from: [{', '.join(stated)}]}}}}}}\n"
    )


def test_as_many_blocks_as_a_security_group_has_rules_are_sound(findings: Findings) -> None:
    assert codes(findings, ssh_node(blocks(60))) == set()
    # A block that is written twice is one rule.
    assert codes(findings, ssh_node(blocks(60), blocks(1))) == set()


def lans(count: int) -> str:
    """Physical sites outside of the supernet, none beside another."""
    return ", ".join(
        f"lan-{n}: {{kind: physical, cidr: 172.20.{2 * n}.0/24, "
        f"gateway: {{addresses: [198.51.100.{n + 100}]}}}}"
        for n in range(count)
    )


@pytest.mark.parametrize("backend", ["vxlan", "wireguard"])
@pytest.mark.parametrize("kinds", ["[openvpn]", "[wireguard]", "[openvpn, wireguard]"])
def test_blocks_of_the_inside_are_counted_as_they_are_resolved(
    findings: Findings, backend: str, kinds: str
) -> None:
    """One site more than fits is found, whatever the pod network and the VPN are."""
    sound = ""
    for count in range(1, 16):
        spec = (
            f"sites: {{us-west-2: {{vpn: []}}, us-east-1: {{vpn: []}}, {lans(count)}}}\n"
            f"kubernetes: {{pods: {{backend: {backend}}}}}\naccess: {{vpn: {{kinds: {kinds}}}}}\n"
        )
        found = {problem.code for problem in findings.of(spec)}
        if "QUOTA006" in found:
            break
        sound = spec
    else:
        pytest.fail("nothing was found")

    def most(spec: str) -> int:
        (findings.folder / "case.yaml").write_text(
            f"{spec}waivers: [{{code: QUOTA006, reason: to resolve it all the same}}]\n"
            f"extends: {Path(__file__).parent / 'cases' / 'good.yaml'}\n"
        )
        cluster, _ = resolve(load(findings.folder / "case.yaml").spec, Lock(), "case")
        ports = sum(len(server.listeners) for server in cluster.access.vpn.servers)
        inside, overlay = len(cluster.network.private), len(cluster.network.overlay_ports)
        return max(limits.inbound_rules(inside, overlay, ports).values())

    quota = quotas.known("rules-per-security-group").default
    assert most(sound) <= quota < most(spec)


def test_an_account_with_a_higher_quota_waives_it(findings: Findings) -> None:
    spec = ssh_node(blocks(61)) + "waivers: [{code: QUOTA006, reason: AWS gave us 100 rules}]\n"
    [problem] = findings.of(spec)
    assert (problem.code, problem.fatal) == ("QUOTA006", False)


def test_what_the_errors_say_to_ask_aws_for(findings: Findings) -> None:
    [problem] = findings.of(ssh_node(blocks(61)))
    assert quotas.known("rules-per-security-group").named in problem.hint


REGIONS = (
    "us-west-2", "us-east-1", "us-east-2", "us-west-1", "eu-west-1", "eu-west-2", "eu-central-1",
    "eu-north-1", "ca-central-1", "ap-south-1",
)  # fmt: skip


def many_regions(sites: int) -> str:
    """Ten regions on transit gateways, and physical sites outside of the supernet, spread over them."""
    names = [f"lan-{n}" for n in range(sites)]
    lines = ["network: {site_mesh: false}", "sites:", "  lab: null"]
    for place, region in enumerate(REGIONS):
        linked = ", ".join(names[place::10])
        lines.append(f"  {region}: {{kind: aws, cidr: 10.{place + 1}.0.0/16, vpn: [{linked}]}}")
    lines += [
        f"  {name}: {{kind: physical, cidr: 172.{16 + n // 128}.{2 * (n % 128)}.0/24,"
        f" gateway: {{addresses: [198.51.{n // 200}.{n % 200 + 1}]}}}}"
        for n, name in enumerate(names)
    ]
    return "\n".join(lines) + "\n"


def test_routes_of_a_table(findings: Findings) -> None:
    def crowded(sites: int) -> set[str]:
        return {path for code, path in codes(findings, many_regions(sites)) if code == "QUOTA007"}

    # Beside the LANs: the VPC, its NAT gateway, the hub; in the primary region, where the VPN server is, two
    # of the overlay and a route to each other region.
    assert crowded(480) == set()
    assert crowded(490) == {"sites.us-west-2"}
    assert crowded(500) == {f"sites.{region}" for region in REGIONS}


def test_a_route_table_learns_a_route_a_site_and_not_a_connection(findings: Findings) -> None:
    sites = ", ".join(
        f"s-{n}: {{kind: physical, cidr: 10.220.{n}.0/24, "
        f"gateway: {{addresses: [198.51.100.{n}, 203.0.113.{n}]}}}}"
        for n in range(1, 101)
    )
    spec = f"network: {{site_mesh: false}}\nsites: {{lab: null, us-east-1: null, {sites}}}\n"
    found = {code for code, _ in codes(findings, spec)}
    assert "NET023" in found
    assert "QUOTA008" not in found


def test_roles_of_people(findings: Findings) -> None:
    users = ", ".join(f"user-{n}: {{vpn: false, groups: [engineers]}}" for n in range(1000))
    spec = (
        f"access: {{users: {{{users}}}}}\n"
        'research: {images: {torch: {image: "registry.good.example/torch:1"}}, default_image: torch}\n'
    )
    assert ("QUOTA007", "access") in codes(findings, spec)


def test_buckets_that_are_pods_volumes_alone_are_not_in_the_policies_of_nodes(findings: Findings) -> None:
    buckets = ", ".join(f"data-{n}: {{volumes: true}}" for n in range(60))
    assert "QUOTA009" not in {code for code, _ in codes(findings, f"storage: {{s3: {{{buckets}}}}}\n")}


@pytest.mark.parametrize("value", ["k" * 370, "k" * 3968, "v=DKIM1; p=" + "A" * 359])
def test_a_long_txt_value_is_sound(findings: Findings, value: str) -> None:
    """A DKIM key: the module cuts it into strings, which who asks puts together again (RFC 6376, 3.6.2.2)."""
    assert codes(findings, f'dns: {{records: {{key: {{type: TXT, values: ["{value}"]}}}}}}\n') == set()


def test_signs_of_any_script_are_taken_in_tags(findings: Findings) -> None:
    assert codes(findings, "owner: Équipe vision 日本 ada@lab.example\n") == set()


@pytest.mark.parametrize("name", ["Ada.L", "9ada", "a" * 33])
def test_what_a_user_may_be_called_is_said(findings: Findings, name: str) -> None:
    [problem] = findings.of(f"access: {{users: {{{name}: {{}}}}}}\n")
    assert problem.code == "SPEC003"
    assert name in str(problem)
    assert "32" in str(problem)
