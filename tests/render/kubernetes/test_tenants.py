"""Namespaces of people and groups: what each may hold, who may talk to it, and who may do what in it."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any

import pytest
from golden_clusters import golden
from msgspec.structs import replace

from infra.catalogue.identities import KUBECONFIGS
from infra.model import NO_OUTPUTS, Cluster
from infra.model.kubernetes import AllowedEgress
from infra.render.kubernetes import access, firewall, namespaces


@pytest.fixture(scope="module")
def research() -> Cluster:
    return golden("research")


def found(module: Any, cluster: Cluster) -> list[dict[str, Any]]:
    return [each for some in module.objects(cluster, NO_OUTPUTS).values() for each in some]


def of_kind(module: Any, cluster: Cluster, kind: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Namespace and name → object."""
    return {
        (each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in found(module, cluster)
        if each["kind"] == kind
    }


def test_everyone_has_a_namespace_with_all_its_walls(research: Cluster) -> None:
    tenants = {user.namespace for user in research.access.users}
    tenants |= {group.namespace for group in research.access.groups}
    every = of_kind(namespaces, research, "Namespace")
    assert {name for _, name in every} == {*tenants, "causeway-system", "mlflow"}
    for kind in ("LimitRange", "ResourceQuota", "NetworkPolicy"):
        assert {namespace for namespace, _ in of_kind(namespaces, research, kind)} == tenants
    for (_, name), each in every.items():
        assert ("causeway.dev/tenant" in each["metadata"]["labels"]) == (name in tenants)


def test_work_of_a_person_is_on_the_account_of_their_first_group(research: Cluster) -> None:
    ada = replace(research.access.users[0], groups=("researchers", "engineers"))
    loner = replace(research.access.users[1], groups=())
    cluster = replace(research, access=replace(research.access, users=(ada, loner)))
    every = of_kind(namespaces, cluster, "Namespace")
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
        for (_, name), each in of_kind(namespaces, cluster, "Namespace").items()
    }
    system = {first.namespace, "causeway-system"}
    assert {name for name, level in levels.items() if level == "privileged"} == system
    assert levels.pop("mlflow") == "restricted"
    assert {level for name, level in levels.items() if name not in system} == {"baseline"}


def test_pods_are_reached_by_their_own_by_ours_and_by_laptops_and_never_reach_credentials(
    research: Cluster,
) -> None:
    policy = next(iter(of_kind(namespaces, research, "NetworkPolicy").values()))["spec"]
    own, visitors, laptops = (rule["from"] for rule in policy["ingress"])
    assert own == [{"podSelector": {}}]
    names = visitors[0]["namespaceSelector"]["matchExpressions"][0]
    assert (names["key"], names["operator"]) == ("kubernetes.io/metadata.name", "In")
    assert {"causeway-system", "monitoring"} < {*names["values"]}
    # What servers translate to, and what they give out; of the pods' range what no pod has.
    blocks = {each["ipBlock"]["cidr"] for each in laptops}
    assert str(research.network.clients) in blocks
    kept = research.access.vpn.pods
    assert kept is not None
    assert [each for each in namespaces.laptops(research) if each.overlaps(research.network.pods)] == [kept]
    assert kept.broadcast_address == research.network.pods.broadcast_address
    for region in research.regions:
        assert any(region.vpc.subnet_of(block) for block in namespaces.laptops(research))


def test_pods_reach_the_internet_and_of_machines_names_and_the_api(research: Cluster) -> None:
    blocks = [*(each.vpc for each in research.regions), *(each.lan for each in research.sites)]
    allowed = AllowedEgress(IPv4Network("10.200.0.50/32"), "udp", (161, 5432))
    egress = replace(research.kubernetes.egress, allowed=(allowed,), endpoints=(research.regions[0].vpc,))
    changed = replace(research, kubernetes=replace(research.kubernetes, egress=egress))
    policy = next(iter(of_kind(namespaces, changed, "NetworkPolicy").values()))["spec"]
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
    def hard(cluster: Cluster) -> Any:
        return next(iter(of_kind(namespaces, cluster, "ResourceQuota").values()))["spec"]["hard"]

    assert hard(research)["pods"] == "5000"
    assert "requests.cpu" not in hard(research)
    # A port on every node, or a balancer that nobody makes, is no way in.
    assert hard(research)["services.nodeports"] == hard(research)["services.loadbalancers"] == "0"
    most = replace(research.kubernetes.namespaces, pods=7, cpu=20, memory_mib=2048)
    less = replace(research, kubernetes=replace(research.kubernetes, namespaces=most))
    asked = {key: hard(less)[key] for key in ("pods", "requests.cpu", "requests.memory")}
    assert asked == {"pods": "7", "requests.cpu": "20", "requests.memory": "2048Mi"}


def test_what_enforces_policies_runs_where_peoples_pods_do(research: Cluster) -> None:
    (daemons,) = of_kind(firewall, research, "DaemonSet").values()
    pod = daemons["spec"]["template"]["spec"]
    # Of gateways, which are tainted with NoExecute, it keeps off.
    assert pod["tolerations"] == [{"operator": "Exists", "effect": "NoSchedule"}]
    assert pod["hostNetwork"]
    assert pod["containers"][0]["image"].startswith("registry.k8s.io/networking/kube-network-policies:v")


def test_rights_hang_on_people_and_never_on_a_certificates_groups(research: Cluster) -> None:
    bindings = {
        **of_kind(access, research, "RoleBinding"),
        **of_kind(access, research, "ClusterRoleBinding"),
    }
    subjects = [subject for each in bindings.values() for subject in each["subjects"]]
    assert {subject["kind"] for subject in subjects} == {"User"}
    people = {user.login for user in research.access.users}
    # Masters act as this one, and as nothing else, to have people's certificates signed.
    assert {subject["name"] for subject in subjects} == people | {KUBECONFIGS}


def test_who_may_become_root_runs_the_cluster(research: Cluster) -> None:
    every = of_kind(access, research, "ClusterRoleBinding")
    engineers = every["", "causeway:engineers"]
    assert engineers["roleRef"]["name"] == "cluster-admin"
    assert [subject["name"] for subject in engineers["subjects"]] == ["ada"]
    nobody = tuple(replace(group, sudo=False) for group in research.access.groups)
    cluster = replace(research, access=replace(research.access, groups=nobody))
    assert ("", "causeway:engineers") not in of_kind(access, cluster, "ClusterRoleBinding")


def test_a_person_has_rights_in_the_own_namespace_and_in_their_groups_alone(research: Cluster) -> None:
    allowed: dict[str, set[str]] = {}
    for (namespace, _), each in of_kind(access, research, "RoleBinding").items():
        for subject in each["subjects"]:
            allowed.setdefault(subject["name"], set()).add(namespace)
    groups = {group.name: group.namespace for group in research.access.groups}
    assert allowed == {
        user.login: {user.namespace, *(groups[name] for name in user.groups)}
        for user in research.access.users
    }


def test_no_role_hands_out_rights_or_moves_walls(research: Cluster) -> None:
    (member,) = (
        each
        for (_, name), each in of_kind(access, research, "ClusterRole").items()
        if name == "causeway:member"
    )
    writing = {
        "create",
        "update",
        "patch",
        "delete",
        "deletecollection",
        "bind",
        "escalate",
        "impersonate",
        "*",
    }
    walls = {
        "networkpolicies", "resourcequotas", "limitranges", "roles", "rolebindings", "localqueues",
        "namespaces", "serviceaccounts/token", "daemonsets", "pods/binding", "*",
    }  # fmt: skip
    moved = {
        resource
        for rule in member["rules"]
        if writing & {*rule["verbs"]}
        for resource in rule["resources"]
        if resource in walls
    }
    assert moved == set()
