"""kubeadm's configuration, the kubelet's, and one node's turn among all."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from cookbooks.kitchen import COOKBOOKS, Ask, RenderErb, Tool, run
from kube_tools import need

from infra.schema.defaults import node_prefix

KUBERNETES = COOKBOOKS / "kubernetes"
TOKEN = "abcdef.0123456789abcdef"
SECRETS = {"token": TOKEN, "ca_cert_hashes": ["sha256:" + "a" * 64], "certificate_key": "b" * 64}


def validate(folder: Path, document: dict[str, Any]) -> None:
    """kubeadm takes it. A version as the cookbook adds it: else kubeadm asks the internet for the newest."""
    version = {"kubernetesVersion": "v1.36.3"} if document["kind"] == "ClusterConfiguration" else {}
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({**document, **version}))
    run(need("kubeadm"), "config", "validate", "--config", file)


def join(ask: Ask, **other: Any) -> Any:
    given = {"secrets": SECRETS, "address": None, "master": False, **other}
    expression = (
        "Causeway::Kubeadm.join(name: 'titan-01', endpoint: 'api.test:6443', "
        "secrets: secrets, address: address, master: master)"
    )
    return ask("kubernetes", expression, **given)


def test_a_worker_joins(ask: Ask, tmp_path: Path) -> None:
    document = join(ask)
    assert "controlPlane" not in document
    assert document["discovery"]["bootstrapToken"] == {
        "apiServerEndpoint": "api.test:6443",
        "token": TOKEN,
        "caCertHashes": SECRETS["ca_cert_hashes"],
    }
    validate(tmp_path, document)


def test_a_master_joins_with_the_key_of_the_certificates(ask: Ask, tmp_path: Path) -> None:
    document = join(ask, master=True, address="10.64.0.5")
    assert document["controlPlane"] == {
        "localAPIEndpoint": {"advertiseAddress": "10.64.0.5", "bindPort": 6443},
        "certificateKey": "b" * 64,
    }
    validate(tmp_path, document)


def test_the_secret_may_name_another_endpoint(ask: Ask) -> None:
    document = join(ask, secrets={**SECRETS, "endpoint": "10.64.0.5:6443"})
    assert document["discovery"]["bootstrapToken"]["apiServerEndpoint"] == "10.64.0.5:6443"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("token", "abcdef.TOOSHORT"),
        ("token", None),
        ("ca_cert_hashes", []),
        ("ca_cert_hashes", ["sha256:beef"]),
        ("certificate_key", "secret-of-mine"),
        ("ca", "no certificate"),
    ],
)
def test_a_bad_secret_is_named_and_not_shown(ask: Ask, field: str, value: Any) -> None:
    text = yaml.safe_dump({**SECRETS, field: value})
    refusal = ask("kubernetes", "Causeway::Kubeadm.secrets(text, '/etc/causeway/x')", text=text)["raised"]
    assert refusal.startswith("/etc/causeway/x ")
    assert refusal.endswith(f" {field}")


def test_a_secret_that_is_not_yaml_is_not_shown(ask: Ask) -> None:
    refusal = ask("kubernetes", "Causeway::Kubeadm.secrets(text, 'x')", text="token: 'abc\n{")["raised"]
    assert "YAML" in refusal
    assert "abc" not in refusal


def cluster(ask: Ask, audit: dict[str, int] | None, *, encrypted: bool = False) -> Any:
    expression = (
        "Causeway::Kubeadm.cluster(name: 'research', endpoint: 'api.test:6443', pods: '10.96.0.0/11', "
        "services: '10.90.0.0/16', domain: 'cluster.local', pods_per_node: 110, sans: ['api.test'], "
        "audit: audit, encrypted: encrypted)"
    )
    return ask("kubernetes", expression, audit=audit, encrypted=encrypted)


def test_a_cluster_keeps_an_audit_log_and_mounts_what_it_names(ask: Ask, tmp_path: Path) -> None:
    document = cluster(ask, {"days": 30, "files": 10, "mib": 100}, encrypted=True)
    server = document["apiServer"]
    flags = {each["name"]: each["value"] for each in server["extraArgs"]}
    mounted = {each["mountPath"] for each in server["extraVolumes"]}
    assert flags["audit-policy-file"] in mounted
    assert str(Path(flags["audit-log-path"]).parent) in mounted
    assert flags["encryption-provider-config"] in mounted
    validate(tmp_path, document)


def test_a_cluster_without_either(ask: Ask) -> None:
    server = cluster(ask, None)["apiServer"]
    assert (server["extraArgs"], server["extraVolumes"]) == ([], [])


def test_a_nodes_pod_range_is_the_one_that_addresses_are_planned_with(ask: Ask) -> None:
    pods = list(range(8, 1025))
    answer = ask("kubernetes", "pods.map { |each| Causeway::Kubeadm.node_prefix(each) }", pods=pods)
    assert answer == [node_prefix(each) for each in pods]


def test_reservations_are_those_of_managed_clusters(ask: Ask) -> None:
    """Figures of EKS: m5.xlarge (4 CPUs, 58 pods) and a machine with 64 CPUs and 737 pods."""
    machines = [[4, 58], [64, 737]]
    shares = ask(
        "kubernetes", "machines.map { |each| Causeway::Reservations.kube(*each) }", machines=machines
    )
    assert shares == [{"cpu": "80m", "memory": "893Mi"}, {"cpu": "230m", "memory": "8362Mi"}]


def test_the_systems_share_has_bounds(ask: Ask) -> None:
    mib = [2048, 65536, 131072, 4194304]
    shares = ask(
        "kubernetes", "mib.map { |each| Causeway::Reservations.system(16, each)['memory'] }", mib=mib
    )
    assert shares == ["512Mi", "1024Mi", "2048Mi", "2048Mi"]
    assert ask("kubernetes", "Causeway::Reservations.mib('65843080kB')") == 64299


def test_labels_that_a_kubelet_may_set_and_those_that_keep_it_from_starting(ask: Ask) -> None:
    may = "gpu-class causeway.io/rack nvidia.com/gpu.product topology.kubernetes.io/zone notkubernetes.io/x"
    may += " node.kubernetes.io/instance-type kubernetes.io/arch node.kubernetes.io/anything"
    may_not = "node-role.kubernetes.io/worker kubernetes.io/role node-restriction.kubernetes.io/x k8s.io/x"
    expression = """labels.map do |label|
        Causeway::NodeRegistration.labels(label => 'x')
    rescue ArgumentError => error
        error.message.include?(label)
    end"""
    assert ask("kubernetes", expression, labels=may.split()) == [f"{label}=x" for label in may.split()]
    assert ask("kubernetes", expression, labels=may_not.split()) == [True] * 4


def test_taints(ask: Ask) -> None:
    taints = {
        "gpu=true:NoSchedule": {"key": "gpu", "value": "true", "effect": "NoSchedule"},
        "spot:PreferNoSchedule": {"key": "spot", "effect": "PreferNoSchedule"},
        "a.io/b=:NoExecute": {"key": "a.io/b", "effect": "NoExecute"},
    }
    written = [*taints, taints["gpu=true:NoSchedule"]]
    read = ask("kubernetes", "written.map { |each| Causeway::NodeRegistration.taint(each) }", written=written)
    assert read == [*taints.values(), taints["gpu=true:NoSchedule"]]
    refusal = ask("kubernetes", "Causeway::NodeRegistration.taint('gpu=true:Never')")["raised"]
    assert "gpu=true:Never" in refusal


def test_the_kubelets_arguments_are_read_by_systemd_and_shells(render_erb: RenderErb, tool: Tool) -> None:
    arguments = {"node-ip": "10.200.0.11", "node-labels": "a=1,b.io/c=2"}
    text = render_erb("kubernetes", "kubelet.erb", variables={"arguments": arguments})
    read = run(tool("sh", "dash"), "-c", f'{text}\nprintf %s "$KUBELET_EXTRA_ARGS"')
    assert read.split() == [
        "--config-dir=/etc/kubernetes/kubelet.conf.d",
        "--node-ip=10.200.0.11",
        "--node-labels=a=1,b.io/c=2",
    ]


def test_swap_lines_become_comments(ask: Ask) -> None:
    fstab = (
        "UUID=1 / ext4 defaults 0 1\n"
        "# UUID=2 none swap sw 0 0\n"
        "/swap.img\tnone\tswap\tsw\t0\t0\n"
        "server:/swap /mnt/swap nfs defaults 0 0\n"
    )
    once = ask("kubernetes", "Causeway::Swap.without(fstab)", fstab=fstab)
    changed = [line for line in once.splitlines() if line not in fstab.splitlines()]
    assert [(line[0], line.split()[-6]) for line in changed] == [("#", "/swap.img")]
    assert len(once.splitlines()) == len(fstab.splitlines())
    assert ask("kubernetes", "Causeway::Swap.without(fstab)", fstab=once) == once


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
def test_one_node_at_a_time(ask: Ask, steps: str, answers: list[Any]) -> None:
    assert ask("kubernetes", f"{API}\n{steps}") == answers


def test_two_that_find_a_forgotten_lease_do_not_both_have_it(ask: Ask) -> None:
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
    assert ask("kubernetes", f"require 'delegate'\n{API}\n{race}") == [True, False, None]


NAMELESS = """\
for names in /etc/protocols /etc/services; do [ ! -e "$names" ] || mount --bind /dev/null "$names"; done
exec nft --check --file "$1"
"""


@pytest.mark.parametrize("master", [False, True])
def test_the_rules_for_pods_need_no_names_of_protocols(
    render_erb: RenderErb, tool: Tool, tmp_path: Path, master: bool
) -> None:
    """A minimal machine lacks the package netbase. Its kubelet does not start without these rules."""
    tool("nft", "nftables")
    variables = {
        "pods": "10.4.0.0/14", "services": "10.0.16.0/20", "dns": "10.0.16.10", "api_port": 6443,
        "master": master, "overlay": "flannel.1", "machines": ["10.200.0.0/22"], "endpoints": ["10.0.4.0/22"],
        "refused": {"tcp": [2049], "udp": [2049, 8472]},
        "allowed": [{"block": "10.200.0.2/32", "protocol": "tcp", "ports": [3128]}],
    }  # fmt: skip
    rules = tmp_path / "pods.nft"
    rules.write_text(render_erb("kubernetes", "pods.nft.erb", variables=variables))
    run("unshare", "--net", "--mount", "--map-root-user", "sh", "-euc", NAMELESS, "sh", rules)
