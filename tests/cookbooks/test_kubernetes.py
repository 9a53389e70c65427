"""kubeadm's configuration, the kubelet's, and one node's turn among all."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from cookbooks.kitchen import COOKBOOKS, RenderErb, Tool, run
from cookbooks.libraries import ask

from infra.spec.defaults import node_prefix

KUBERNETES = COOKBOOKS / "kubernetes"
TOKEN = "abcdef.0123456789abcdef"
SECRETS = {"token": TOKEN, "ca_cert_hashes": ["sha256:" + "a" * 64], "certificate_key": "b" * 64}

# kubeadm.k8s.io/v1beta4, as far as we go (cmd/kubeadm/app/apis/kubeadm/v1beta4/types.go). Others are refused.
ARGUMENT: dict[str, Any] = {"name": {}, "value": {}}
VOLUME: dict[str, Any] = {"name": {}, "hostPath": {}, "mountPath": {}, "pathType": {}, "readOnly": {}}
REGISTRATION: dict[str, Any] = {
    **{each: {} for each in ("name", "criSocket", "imagePullPolicy", "imagePullSerial")},
    "taints": {"key": {}, "value": {}, "effect": {}},
    "kubeletExtraArgs": ARGUMENT,
}
LOCAL: dict[str, Any] = {"advertiseAddress": {}, "bindPort": {}}
TYPES: dict[str, dict[str, Any]] = {
    "JoinConfiguration": {
        "nodeRegistration": REGISTRATION,
        "discovery": {"bootstrapToken": {"apiServerEndpoint": {}, "token": {}, "caCertHashes": {}}},
        "controlPlane": {"localAPIEndpoint": LOCAL, "certificateKey": {}},
    },
    "InitConfiguration": {
        "nodeRegistration": REGISTRATION,
        "localAPIEndpoint": LOCAL,
        "certificateKey": {},
    },
    "ClusterConfiguration": {
        **{each: {} for each in ("clusterName", "kubernetesVersion", "controlPlaneEndpoint")},
        "networking": {"podSubnet": {}, "serviceSubnet": {}, "dnsDomain": {}},
        "apiServer": {"certSANs": {}, "extraArgs": ARGUMENT, "extraVolumes": VOLUME},
        "controllerManager": {"extraArgs": ARGUMENT, "extraVolumes": VOLUME},
        "etcd": {"local": {"dataDir": {}, "extraArgs": ARGUMENT}},
    },
}


def unknown(value: Any, known: dict[str, Any], path: str = "") -> list[str]:
    """Fields that the type does not have."""
    if isinstance(value, list):
        return [each for item in value for each in unknown(item, known, path)]
    if not isinstance(value, dict):
        return []
    return [
        found
        for key, item in value.items()
        for found in (unknown(item, known[key], f"{path}.{key}") if key in known else [f"{path}.{key}"])
    ]


def check(document: dict[str, Any]) -> None:
    assert document["apiVersion"] == "kubeadm.k8s.io/v1beta4"
    own = {key: each for key, each in document.items() if key not in {"apiVersion", "kind"}}
    assert unknown(own, TYPES[document["kind"]]) == []


@pytest.fixture
def ruby(tool: Tool) -> str:
    return tool("ruby", "ruby")


def join(ruby: str, **other: Any) -> dict[str, Any]:
    given = {"name": "titan-01", "secrets": SECRETS, "address": None, "master": False, **other}
    text = ask(
        ruby,
        "kubernetes",
        "Causeway::Kubeadm.yaml(Causeway::Kubeadm.join(name: name, endpoint: 'api.test:6443', "
        "secrets: secrets, address: address, master: master))",
        **given,
    )
    document = yaml.safe_load(text)
    assert isinstance(document, dict)
    return document


def test_a_worker_joins(ruby: str) -> None:
    document = join(ruby)
    check(document)
    assert "controlPlane" not in document
    assert document["discovery"]["bootstrapToken"] == {
        "apiServerEndpoint": "api.test:6443",
        "token": TOKEN,
        "caCertHashes": SECRETS["ca_cert_hashes"],
    }


def test_a_master_joins_with_the_key_of_the_certificates(ruby: str) -> None:
    document = join(ruby, master=True, address="10.64.0.5")
    check(document)
    assert document["controlPlane"] == {
        "localAPIEndpoint": {"advertiseAddress": "10.64.0.5", "bindPort": 6443},
        "certificateKey": "b" * 64,
    }


def test_the_secret_may_name_another_endpoint(ruby: str) -> None:
    document = join(ruby, secrets={**SECRETS, "endpoint": "10.64.0.5:6443"})
    assert document["discovery"]["bootstrapToken"]["apiServerEndpoint"] == "10.64.0.5:6443"


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({"token": "abcdef.TOOSHORT"}, "token"),
        ({"token": None}, "token"),
        ({"ca_cert_hashes": []}, "ca_cert_hashes"),
        ({"ca_cert_hashes": ["sha256:beef"]}, "ca_cert_hashes"),
        ({"certificate_key": "secret-of-mine"}, "certificate_key"),
        ({"ca": "no certificate"}, "ca"),
    ],
)
def test_a_bad_secret_is_named_and_not_shown(ruby: str, changed: dict[str, Any], missing: str) -> None:
    text = yaml.safe_dump({**SECRETS, **changed})
    answer = ask(
        ruby,
        "kubernetes",
        "Causeway::Kubeadm.secrets(text, '/etc/causeway/secrets/x')",
        text=text,
    )
    assert answer == {"raised": f"/etc/causeway/secrets/x has no good {missing}"}


def test_a_secret_that_is_not_yaml_is_not_shown(ruby: str) -> None:
    answer = ask(ruby, "kubernetes", "Causeway::Kubeadm.secrets(text, 'x')", text="token: 'abc\n{")
    assert answer == {"raised": "x is not YAML"}


def cluster(ruby: str, **other: Any) -> dict[str, Any]:
    given = {
        "audit": {"days": 30, "files": 10, "mib": 100},
        "encrypted": False,
        "pods_per_node": 110,
        **other,
    }
    text = ask(
        ruby,
        "kubernetes",
        "Causeway::Kubeadm.yaml(Causeway::Kubeadm.cluster(name: 'research', endpoint: 'api.test:6443', "
        "pods: '10.96.0.0/11', services: '10.90.0.0/16', domain: 'cluster.local', "
        "pods_per_node: pods_per_node, sans: ['api.test'], audit: audit, encrypted: encrypted))",
        **given,
    )
    document = yaml.safe_load(text)
    assert isinstance(document, dict)
    check(document)
    return document


def test_a_cluster_keeps_an_audit_log_and_mounts_what_it_names(ruby: str) -> None:
    server = cluster(ruby, encrypted=True)["apiServer"]
    flags = {each["name"]: each["value"] for each in server["extraArgs"]}
    mounted = {each["mountPath"] for each in server["extraVolumes"]}
    assert flags["audit-policy-file"] in mounted
    assert str(Path(flags["audit-log-path"]).parent) in mounted
    assert flags["encryption-provider-config"] in mounted
    assert all(isinstance(each["value"], str) for each in server["extraArgs"])


def test_a_cluster_without_either(ruby: str) -> None:
    server = cluster(ruby, audit=None)["apiServer"]
    assert (server["extraArgs"], server["extraVolumes"]) == ([], [])


def test_a_nodes_pod_range_is_the_one_that_addresses_are_planned_with(ruby: str) -> None:
    pods = list(range(8, 1025))
    answer = ask(ruby, "kubernetes", "pods.map { |each| Causeway::Kubeadm.node_prefix(each) }", pods=pods)
    assert answer == [node_prefix(each) for each in pods]


def test_reservations_are_those_of_managed_clusters(ruby: str) -> None:
    """Figures of EKS: m5.xlarge (4 CPUs, 58 pods) and a machine with 64 CPUs and 737 pods."""
    small = ask(ruby, "kubernetes", "Causeway::Reservations.kube(4, 58)")
    large = ask(ruby, "kubernetes", "Causeway::Reservations.kube(64, 737)")
    assert small == {"cpu": "80m", "memory": "893Mi"}
    assert large == {"cpu": "230m", "memory": "8362Mi"}


def test_the_systems_share_has_bounds(ruby: str) -> None:
    mib = [2048, 65536, 131072, 4194304]
    shares = ask(
        ruby, "kubernetes", "mib.map { |each| Causeway::Reservations.system(16, each)['memory'] }", mib=mib
    )
    assert shares == ["512Mi", "1024Mi", "2048Mi", "2048Mi"]
    assert ask(ruby, "kubernetes", "Causeway::Reservations.mib('65843080kB')") == 64299


@pytest.mark.parametrize(
    "label",
    [
        "gpu-class",
        "causeway.io/rack",
        "nvidia.com/gpu.product",
        "topology.kubernetes.io/zone",
        "node.kubernetes.io/instance-type",
        "kubernetes.io/arch",
        "node.kubernetes.io/anything",
        "notkubernetes.io/x",
    ],
)
def test_labels_a_kubelet_may_set(ruby: str, label: str) -> None:
    answer = ask(ruby, "kubernetes", "Causeway::NodeRegistration.labels(label => 'x')", label=label)
    assert answer == f"{label}=x"


@pytest.mark.parametrize(
    "label",
    ["node-role.kubernetes.io/worker", "kubernetes.io/role", "node-restriction.kubernetes.io/x", "k8s.io/x"],
)
def test_labels_that_keep_a_kubelet_from_starting(ruby: str, label: str) -> None:
    answer = ask(ruby, "kubernetes", "Causeway::NodeRegistration.labels(label => 'x')", label=label)
    assert label in answer["raised"]


@pytest.mark.parametrize(
    ("written", "taint"),
    [
        ("gpu=true:NoSchedule", {"key": "gpu", "value": "true", "effect": "NoSchedule"}),
        ("spot:PreferNoSchedule", {"key": "spot", "effect": "PreferNoSchedule"}),
        ("a.io/b=:NoExecute", {"key": "a.io/b", "effect": "NoExecute"}),
        (
            {"key": "k", "value": "v", "effect": "NoExecute"},
            {"key": "k", "value": "v", "effect": "NoExecute"},
        ),
    ],
)
def test_taints(ruby: str, written: Any, taint: dict[str, str]) -> None:
    assert ask(ruby, "kubernetes", "Causeway::NodeRegistration.taint(written)", written=written) == taint


def test_a_taint_with_an_effect_that_there_is_not(ruby: str) -> None:
    answer = ask(ruby, "kubernetes", "Causeway::NodeRegistration.taint('gpu=true:Never')")
    assert "gpu=true:Never" in answer["raised"]


def test_the_kubelets_arguments_are_read_by_systemd_and_shells(render_erb: RenderErb, tool: Tool) -> None:
    arguments = {"node-ip": "10.200.0.11", "node-labels": "a=1,b.io/c=2"}
    text = render_erb("kubernetes", "kubelet.erb", variables={"arguments": arguments})
    read = run(tool("sh", "dash"), "-c", f'{text}\nprintf %s "$KUBELET_EXTRA_ARGS"')
    assert read.split() == [
        "--config-dir=/etc/kubernetes/kubelet.conf.d",
        "--node-ip=10.200.0.11",
        "--node-labels=a=1,b.io/c=2",
    ]


def test_swap_lines_become_comments(ruby: str) -> None:
    fstab = (
        "UUID=1 / ext4 defaults 0 1\n"
        "# UUID=2 none swap sw 0 0\n"
        "/swap.img\tnone\tswap\tsw\t0\t0\n"
        "server:/swap /mnt/swap nfs defaults 0 0\n"
    )
    once = ask(ruby, "kubernetes", "Causeway::Swap.without(fstab)", fstab=fstab)
    assert once == fstab.replace("/swap.img", "# off, for the kubelet: /swap.img")
    assert ask(ruby, "kubernetes", "Causeway::Swap.without(fstab)", fstab=once) == once


def test_the_audit_policy_never_logs_what_secrets_say() -> None:
    policy = yaml.safe_load((KUBERNETES / "files/audit-policy.yaml").read_text())
    assert (policy["apiVersion"], policy["kind"]) == ("audit.k8s.io/v1", "Policy")
    assert {rule["level"] for rule in policy["rules"]} <= {"None", "Metadata", "Request", "RequestResponse"}
    # The first rule that matches counts. Those before log nothing.
    levels = [rule["level"] for rule in policy["rules"]]
    secret = policy["rules"][levels.index("Metadata")]
    assert set(levels[: levels.index("Metadata")]) == {"None"}
    assert set(secret) == {"level", "resources"}, "for everyone, whatever they do"
    assert "secrets" in secret["resources"][0]["resources"]
    assert policy["rules"][-1] == {"level": "Metadata"}, "nothing goes unseen"


def test_the_kubelet_waits_until_it_has_joined(tool: Tool, tmp_path: Path) -> None:
    analyze = tool("systemd-analyze", "systemd")
    unit = tmp_path / "kubelet.service"
    (tmp_path / "causeway-pods.service").write_text("[Service]\nExecStart=/bin/true\n")
    unit.write_text("[Service]\nExecStart=/bin/true\n" + (KUBERNETES / "files/kubelet-unit.conf").read_text())
    done = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, check=False, timeout=60)
    assert "kubelet.service:" not in done.stderr.replace("containerd.service", ""), done.stderr


# The API server, as far as leases go: one object, and a version that a replacement must name.
API = """
class Api
  def initialize; @lease = nil; @version = 0; end
  def get(*) = @lease && JSON.parse(JSON.generate(@lease))
  def try(verb, *, input:)
    asked = JSON.parse(input)
    return [false, 'AlreadyExists'] if verb == 'create' && @lease
    if verb == 'replace'
      return [false, 'NotFound'] unless @lease
      seen = asked['metadata']['resourceVersion']
      return [false, 'Conflict'] if seen != @lease['metadata']['resourceVersion']
    end
    @version += 1
    asked['metadata']['resourceVersion'] = @version.to_s
    @lease = asked
    [true, '']
  end
  def kubectl(*) = @lease = nil
  def age(seconds) = @lease['spec']['renewTime'] = (Time.now.utc - seconds).iso8601(6)
end
api = Api.new
turn = ->(who) { Causeway::Turn.new(api, 'kube-system', 'causeway-upgrade', who, 600) }
a = turn.call('a')
b = turn.call('b')
"""


@pytest.mark.parametrize(
    ("steps", "answers"),
    [
        ("[a.take, b.take, b.taken_by[0]]", [True, False, "a"]),
        ("[a.take, a.take, a.taken_by]", [True, True, None]),
        ("[a.take, a.give_back && 0, b.take, a.take]", [True, None, True, False]),
        ("[a.take, b.give_back, b.take]", [True, None, False]),
        ("[a.take, (api.age(601); b.take), a.take]", [True, True, False]),
        ("[a.take, (api.age(599); b.take)]", [True, False]),
    ],
    ids=["first", "again", "handed on", "not another's", "forgotten", "not yet"],
)
def test_one_node_at_a_time(ruby: str, steps: str, answers: list[Any]) -> None:
    assert ask(ruby, "kubernetes", f"{API}\n{steps}") == answers


def test_two_that_find_a_forgotten_lease_do_not_both_have_it(ruby: str) -> None:
    """Both have read it before either replaces it: the API server takes the first alone."""
    race = """
    c = turn.call('c')
    a.take
    api.age(601)
    stale = api.get
    slow = Class.new(SimpleDelegator) { attr_accessor :seen; def get(*) = seen }.new(api)
    slow.seen = stale
    late = Causeway::Turn.new(slow, 'kube-system', 'causeway-upgrade', 'c', 600)
    [b.take, late.take, b.taken_by]
    """
    assert ask(ruby, "kubernetes", f"require 'delegate'\n{API}\n{race}") == [True, False, None]
