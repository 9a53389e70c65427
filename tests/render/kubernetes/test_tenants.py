"""Namespaces of people and groups: what each may hold, who may talk to it, and who may do what in it."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any

import pytest
from golden_clusters import golden
from msgspec.structs import replace

from infra.model import Cluster
from infra.model.kubernetes import AllowedEgress
from infra.render.kubernetes import objects


@pytest.fixture(scope="module")
def research() -> Cluster:
    return golden("research")


def found(part: str, cluster: Cluster) -> list[dict[str, Any]]:
    return [each for some in objects(part, cluster).values() for each in some]


def of_kind(part: str, cluster: Cluster, kind: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Namespace and name → object."""
    return {
        (each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in found(part, cluster)
        if each["kind"] == kind
    }


def test_work_of_a_person_is_on_the_account_of_their_first_group(research: Cluster) -> None:
    ada = replace(research.access.users[0], groups=("researchers", "engineers"))
    loner = replace(research.access.users[1], groups=())
    cluster = replace(research, access=replace(research.access, users=(ada, loner)))
    every = of_kind("namespaces", cluster, "Namespace")
    teams = {name: each["metadata"]["labels"].get("causeway.dev/team") for (_, name), each in every.items()}
    assert teams[ada.namespace] == "team-researchers"
    assert teams[loner.namespace] == "shared"
    assert teams["team-engineers"] == "team-engineers"


def test_a_groups_pods_may_be_let_do_more(research: Cluster) -> None:
    first, *others = research.access.groups
    groups = (replace(first, pod_security="privileged"), *others)
    cluster = replace(research, access=replace(research.access, groups=groups))
    levels = {
        name: each["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for (_, name), each in of_kind("namespaces", cluster, "Namespace").items()
    }
    system = {first.namespace, "causeway-system"}
    assert {name for name, level in levels.items() if level == "privileged"} == system
    assert levels.pop("mlflow") == "restricted"
    assert {level for name, level in levels.items() if name not in system} == {"baseline"}


def test_pods_reach_the_internet_and_of_machines_names_and_the_api(research: Cluster) -> None:
    blocks = [*(each.vpc for each in research.regions), *(each.lan for each in research.sites)]
    allowed = AllowedEgress(IPv4Network("10.200.0.50/32"), "udp", (161, 5432))
    egress = replace(research.kubernetes.egress, allowed=(allowed,), endpoints=(research.regions[0].vpc,))
    changed = replace(research, kubernetes=replace(research.kubernetes, egress=egress))
    policy = next(iter(of_kind("namespaces", changed, "NetworkPolicy").values()))["spec"]
    pods, internet, machines, endpoints, stated = policy["egress"]
    assert pods == {"to": [{"namespaceSelector": {}}]}
    (outside,) = internet["to"]
    assert outside["ipBlock"]["cidr"] == "0.0.0.0/0"
    excepted = [IPv4Network(each) for each in outside["ipBlock"]["except"]]
    assert IPv4Network("169.254.169.254/32") in excepted
    assert all(any(block.subnet_of(each) for each in excepted) for block in blocks)

    def ports(rule: Any) -> set[tuple[str, int]]:
        return {
            (each["protocol"], port)
            for each in rule
            for port in range(each["port"], each.get("endPort", each["port"]) + 1)
        }

    every = {(protocol, port) for protocol in ("TCP", "UDP") for port in range(1, 65536)}
    assert every - ports(internet["ports"]) == {("TCP", 2049), ("UDP", 2049), ("UDP", 8472)}
    assert ports(machines["ports"]) == {("TCP", 53), ("UDP", 53), ("TCP", 6443)}
    assert machines["to"] == [{"ipBlock": {"cidr": str(each)}} for each in excepted[1:]]
    assert endpoints["to"] == [{"ipBlock": {"cidr": str(research.regions[0].vpc)}}]
    assert ports(endpoints["ports"]) == {("TCP", 443)}
    assert stated["to"] == [{"ipBlock": {"cidr": "10.200.0.50/32"}}]
    assert ports(stated["ports"]) == {("UDP", 161), ("UDP", 5432)}


def test_quotas_are_the_specs(research: Cluster) -> None:
    limits = replace(research.kubernetes.namespaces, pods=7, cpu=20, memory_mib=2048)
    cluster = replace(research, kubernetes=replace(research.kubernetes, namespaces=limits))
    for quota in of_kind("namespaces", cluster, "ResourceQuota").values():
        wanted = {"pods": "7", "requests.cpu": "20", "requests.memory": "2048Mi"}
        assert wanted.items() <= quota["spec"]["hard"].items()


def test_no_role_hands_out_rights_or_moves_walls(research: Cluster) -> None:
    (member,) = (
        each
        for (_, name), each in of_kind("access", research, "ClusterRole").items()
        if name == "causeway:member"
    )
    writing = {
        "create", "update", "patch", "delete", "deletecollection", "bind", "escalate", "impersonate", "*",
    }  # fmt: skip
    walls = {
        "networkpolicies", "resourcequotas", "limitranges", "roles", "rolebindings", "localqueues",
        "namespaces", "serviceaccounts/token", "daemonsets", "pods/binding", "*",
    }  # fmt: skip
    written = [rule["resources"] for rule in member["rules"] if writing & {*rule["verbs"]}]
    assert not walls & {resource for resources in written for resource in resources}
