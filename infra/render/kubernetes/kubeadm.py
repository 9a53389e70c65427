"""kubeadm's configuration (kubeadm.k8s.io/v1beta4): of the cluster, of masters and of joining nodes.

The same values are attributes of the Chef environment (``attributes``): the cookbook ``kubernetes`` merges
them over its defaults, so that machines run with the values in these files. They contain no secrets: they
name files on the machine, and the comment at the top says which program writes those.

Types: https://kubernetes.io/docs/reference/config-api/kubeadm-config.v1beta4/ and
kube-proxy-config.v1alpha1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from infra.catalogue import efa
from infra.files import Files
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.kubernetes import Reserved, Taint
from infra.model.machines import ControlPlane, NodePool
from infra.model.places import PhysicalNode, PhysicalSite
from infra.model.platform import Bucket
from infra.render.kubernetes import authentication, kubelet
from infra.render.kubernetes.manifests import Object, to_yaml
from infra.shipped_files import ROOT

_API: Final = "kubeadm.k8s.io/v1beta4"

SNAPSHOTS: Final = "etcd/"
"""The prefix of etcd snapshots in a bucket."""
AUDIT_COPIES: Final = "audit/"
"""The prefix of the audit log in a bucket."""
AUDIT_POLICY: Final = "/etc/kubernetes/audit-policy.yaml"
AUDIT_LOGS: Final = "/var/log/kubernetes/audit"
ENCRYPTION: Final = "/etc/kubernetes/encryption.yaml"
DISCOVERY: Final = "/run/causeway/kubernetes-discovery.conf"
"""A kubeconfig with the API's address, the cluster's CA and a token, on a tmpfs while a node joins."""

_ANY: Final = "0.0.0.0"  # noqa: S104
"""The bind address of metrics, which other machines scrape: security groups restrict the access."""
ADMISSION: Final = (
    "NodeRestriction",
    # Adds a toleration for the taint nvidia.com/gpu to pods that request the resource nvidia.com/gpu.
    "ExtendedResourceToleration",
    # Anyone who may create a Service could redirect others' traffic to it with an external address
    # (CVE-2020-8554). No service of ours has external addresses.
    "DenyServiceExternalIPs",
)
"""Admission plugins beside the default ones."""
_MUTATING_POLICIES: Final = (1, 36)
"""The first version in which MutatingAdmissionPolicy is enabled by default."""
_AUDIT: Final = {"days": 30, "files": 10, "mib": 100}
_AUDIT_SECONDS: Final = 300
"""Seconds between two uploads of the audit log: the most that is lost with a master."""
_POLICY: Final = ROOT / "cookbooks" / "kubernetes" / "files" / "audit-policy.yaml"

_INIT: Final = f"""\
How the cluster begins: `kubeadm init` on the first master, run by the cookbook `kubernetes`,
which adds the master's name and address, and the version of the kubeadm that is there (kubernetesVersion).

Secrets, which no file of these holds:
- The certificate authority and the other keys of /etc/kubernetes/pki are made beforehand and kept in the
  secrets store. `invoke converge` brings them to masters, into /etc/causeway/secrets/kubernetes-pki/.
- The key that secrets are encrypted with at rest is in {ENCRYPTION}
  (EncryptionConfiguration), brought in the same way as /etc/causeway/secrets/kubernetes-encryption.yaml."""

_CLUSTER: Final = """\
What is true of the whole cluster: the part of init.yaml that kubeadm keeps in the ConfigMap
kube-system/kubeadm-config, and reads again when masters join and when it upgrades."""

_JOIN: Final = f"""\
{{what}}, run by the cookbook `kubernetes`.

{DISCOVERY} is a kubeconfig with the API's address, the cluster's
authority and a bootstrap token. The cookbook writes it from /etc/causeway/secrets/kubernetes-join.yaml just
before kubeadm starts, and removes it afterwards. `invoke converge` brings that secret to a machine in a rack.
In the cloud a machine fetches it from the secrets store by its instance role:
{{secret}}"""

_JOIN_MASTER: Final = f"""\
How one more master joins, run by the cookbook `kubernetes`.

{DISCOVERY} is a kubeconfig with the API's address, the cluster's
authority and a bootstrap token. The cookbook writes it from /etc/causeway/secrets/kubernetes-join.yaml just
before kubeadm starts, and removes it afterwards. `invoke converge` brings that secret, and the certificate
authorities with their keys: kubeadm then has none to fetch, and no key to them is named here."""

_TOKENS: Final = f"""\
{authentication.FILE} of masters, written by the cookbook `kubernetes`.
The API server reads it again when it changes."""

_KUBELET: Final = """\
/etc/kubernetes/kubelet.conf.d/50-causeway.conf of {what}; see `--config-dir` of the kubelet."""


def render(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Files:
    """``{path: text}`` of ``kubernetes/kubeadm/``."""
    plane = _plane(cluster)
    site_nodes = {site.name: _kubelets(site) for site in cluster.sites}
    worker = _worker_secret(cluster)
    tokens = authentication.configuration(cluster)
    return {
        "cluster.yaml": to_yaml([cluster_configuration(cluster, outputs)], _CLUSTER),
        "init.yaml": to_yaml(init_documents(cluster, outputs), _INIT),
        "join-master.yaml": to_yaml([_join_master(plane)], _JOIN_MASTER),
        **({"audit-policy.yaml": audit_policy()} if cluster.kubernetes.audit else {}),
        **({"authentication.yaml": to_yaml([tokens], _TOKENS)} if tokens else {}),
        **{
            f"join/pools/{pool.name}.yaml": to_yaml(
                [_join(_same_labels(pool), pool.taints)],
                _JOIN.format(what=f"How a machine of the pool {pool.name} joins", secret=worker)
                + "\nLabels of its site, region, zone and instance type are added when it boots.",
            )
            for pool in cluster.pools
        },
        **{
            f"join/sites/{name}.yaml": to_yaml(
                [_join(_same([node.labels for node in nodes]), ())],
                _JOIN.format(what=f"How a machine of the site {name} joins", secret=worker)
                + "\nLabels and taints of its own are in build/…/chef/nodes/<name>.json.",
            )
            for name, nodes in site_nodes.items()
            if nodes
        },
        **_kubelet_files(cluster, site_nodes),
    }


def attributes(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> dict[str, Any]:
    """The part of ``node['kubernetes']`` that is common to the cluster, for Chef. Empty without masters."""
    if cluster.control_plane is None:
        return {}
    plane = cluster.control_plane
    names = ("apiVersion", "kind")
    configuration = cluster_configuration(cluster, outputs)
    shared = {key: value for key, value in configuration.items() if key not in names}
    init = {key: value for key, value in init_configuration(plane).items() if key not in names}
    store = cluster.secrets if cluster.secrets.store == "ssm" else None
    tokens = authentication.configuration(cluster)
    return {
        # Cloud instances fetch it with their instance role; machines at physical sites have none.
        "join": {
            "parameter": _worker_secret(cluster),
            "region": store.region,
            "copies": list(store.copies),
            "regions": sorted(
                {cluster.region(group.site).region for pool in cluster.pools for group in pool.groups}
            ),
        }
        if store
        else {},
        "kubelet": kubelet.common(),
        "eviction": dict(cluster.kubernetes.eviction),
        "image_gc": dict(kubelet.IMAGES),
        "shutdown": dict(kubelet.SHUTDOWN),
        "efa": {"huge_pages": efa.HUGE_PAGES},
        "control_plane": {
            "first": plane.masters[0].hostname,
            "names": {each.hostname: each.fqdn for each in plane.masters},
            "tokens": store is not None,
            "snapshots": _copies(
                cluster, cluster.storage.snapshots, SNAPSHOTS, cluster.kubernetes.snapshot_seconds
            ),
            "audit_copies": _copies(cluster, cluster.storage.audit, AUDIT_COPIES, _AUDIT_SECONDS),
            "cluster": shared,
            "init": init,
            "proxy": kube_proxy(cluster),
            "audit_log": dict(_AUDIT),
            **({"authentication": tokens} if tokens else {}),
        },
    }


def _worker_secret(cluster: Cluster) -> str:
    """The parameter that the nodes' role may read, and the masters' may write."""
    return f"{cluster.secrets.prefix}/node/kubernetes-join"


def _copies(cluster: Cluster, bucket: Bucket | None, prefix: str, seconds: int) -> dict[str, Any]:
    """The bucket and interval of uploads by masters."""
    if bucket is None:
        return {}
    region = cluster.region(bucket.site).region
    return {"bucket": bucket.bucket, "prefix": prefix, "region": region, "interval": seconds}


def init_documents(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> list[Object]:
    """All documents for `kubeadm init`."""
    return [
        init_configuration(_plane(cluster)),
        cluster_configuration(cluster, outputs),
        kubelet.cluster_wide(cluster),
        kube_proxy(cluster),
    ]


def init_configuration(plane: ControlPlane) -> Object:
    """InitConfiguration of the first master."""
    return {
        "apiVersion": _API,
        "kind": "InitConfiguration",
        "nodeRegistration": _registration(),
        "localAPIEndpoint": {"bindPort": plane.port},
    }


def cluster_configuration(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Object:
    """ClusterConfiguration, without a version: each master's kubeadm uses its own."""
    plane, network = _plane(cluster), cluster.network
    return {
        "apiVersion": _API,
        "kind": "ClusterConfiguration",
        "clusterName": cluster.name,
        "controlPlaneEndpoint": f"{plane.endpoint}:{plane.port}",
        "certificateValidityPeriod": "8760h",
        "caCertificateValidityPeriod": "87600h",
        "networking": {
            "podSubnet": str(network.pods),
            "serviceSubnet": str(network.services),
            "dnsDomain": cluster.access.vpn.cluster_domain,
        },
        # CoreDNS is ours (kubernetes/dns/): kubeadm's does not know the private zone.
        "dns": {"disabled": True},
        "apiServer": _api_server(cluster, plane, outputs),
        "controllerManager": {
            "extraArgs": _arguments(
                {
                    "bind-address": _ANY,
                    "node-cidr-mask-size": network.pods_node_prefix,
                    "profiling": "false",
                }
            ),
        },
        # Their metrics require a token; those of etcd contain neither keys nor values.
        "scheduler": {"extraArgs": _arguments({"bind-address": _ANY, "profiling": "false"})},
        "etcd": {
            "local": {
                "dataDir": "/var/lib/etcd",
                "extraArgs": _arguments(
                    {
                        "listen-metrics-urls": f"http://{_ANY}:2381",
                        "quota-backend-bytes": 8 << 30,
                    }
                ),
            },
        },
    }


def kube_proxy(cluster: Cluster) -> Object:
    """KubeProxyConfiguration.

    Not in nftables mode, in which no other program can listen on a service's address, as the DNS cache does
    (https://kubernetes.io/docs/tasks/administer-cluster/nodelocaldns/).
    """
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": str(cluster.network.pods),
        "metricsBindAddress": f"{_ANY}:10249",
        # Packets of one connection may be reordered, as a site has two tunnels.
        "conntrack": {"maxPerCore": 65536, "min": 131072, "tcpBeLiberal": True},
    }


def _api_server(cluster: Cluster, plane: ControlPlane, outputs: Outputs) -> Object:
    flags: dict[str, object] = {
        "enable-admission-plugins": ",".join(ADMISSION),
        "encryption-provider-config": ENCRYPTION,
        "kubelet-certificate-authority": "/etc/kubernetes/pki/ca.crt",
        "profiling": "false",
    }
    volumes = [_volume("encryption", ENCRYPTION, "File", read_only=True)]
    if cluster.kubernetes.audit:
        flags |= {
            "audit-policy-file": AUDIT_POLICY,
            "audit-log-path": f"{AUDIT_LOGS}/audit.log",
            "audit-log-maxage": _AUDIT["days"],
            "audit-log-maxbackup": _AUDIT["files"],
            "audit-log-maxsize": _AUDIT["mib"],
        }
        volumes += [
            _volume("audit-policy", AUDIT_POLICY, "File", read_only=True),
            _volume("audit-logs", AUDIT_LOGS, "DirectoryOrCreate", read_only=False),
        ]
    if cluster.access.oidc is not None:
        flags["authentication-config"] = authentication.FILE
        volumes.append(_volume("authentication", authentication.FOLDER, "DirectoryOrCreate", read_only=True))
    if cluster.kubernetes.minor < _MUTATING_POLICIES:
        flags["feature-gates"] = "MutatingAdmissionPolicy=true"
        flags["runtime-config"] = "admissionregistration.k8s.io/v1beta1=true"
    if len(plane.masters) > 1:
        # HTTP/2 clients stay connected to one master. Some are occasionally asked to reconnect, so that a
        # master that was down gets its share of clients again.
        flags["goaway-chance"] = "0.001"
    flags |= _issuer_flags(cluster, issuers(cluster, outputs))
    masters = [name for each in plane.masters for name in (each.hostname, each.fqdn)]
    names = [plane.endpoint, *masters, "127.0.0.1"]
    return {"certSANs": names, "extraArgs": _arguments(flags), "extraVolumes": volumes}


def own_issuer(cluster: Cluster) -> str:
    """The issuer of kubeadm's API servers by default, which cannot be reached from outside."""
    return f"https://kubernetes.default.svc.{cluster.access.vpn.cluster_domain}"


def issuers(cluster: Cluster, outputs: Outputs) -> tuple[str, ...]:
    """The issuers of service account tokens: one that AWS can reach, then kubeadm's own.

    The first one signs, all are accepted (kube-apiserver(1), --service-account-issuer), so existing tokens
    of pods stay valid. An issuer whose URL is assigned by AWS is left out until it is applied.
    """
    stated = cluster.web_identity.issuers if cluster.web_identity is not None else ()
    return (*filter(None, map(outputs.issuer, stated)), own_issuer(cluster))


def issuer_arguments(cluster: Cluster, issuers: Sequence[str]) -> list[dict[str, str]]:
    """The API server's ``extraArgs`` for these issuers; the first one signs."""
    return _arguments(_issuer_flags(cluster, issuers))


def _issuer_flags(cluster: Cluster, issuers: Sequence[str]) -> dict[str, object]:
    own = own_issuer(cluster)
    others = [each for each in issuers if each != own]
    if not others:
        return {}
    published = {} if issuers[0] == own else {"service-account-jwks-uri": f"{issuers[0]}/openid/v1/jwks"}
    return {
        "service-account-issuer": tuple(issuers),
        **published,
        # Tokens for AWS have AWS's audience and are not accepted by this API.
        "api-audiences": ",".join((own, *others)),
    }


def _registration() -> Object:
    return {
        "criSocket": "unix:///run/containerd/containerd.sock",
        "imagePullPolicy": "IfNotPresent",
        "imagePullSerial": False,
    }


def _join(labels: Mapping[str, str], taints: Sequence[Taint]) -> Object:
    return {
        "apiVersion": _API,
        "kind": "JoinConfiguration",
        "discovery": {"file": {"kubeConfigPath": DISCOVERY}},
        "nodeRegistration": {
            **_registration(),
            **({"taints": kubelet.taints_of(taints)} if taints else {}),
            **({"kubeletExtraArgs": _arguments({"node-labels": _joined(labels)})} if labels else {}),
        },
    }


def _join_master(plane: ControlPlane) -> Object:
    return {**_join({}, ()), "controlPlane": {"localAPIEndpoint": {"bindPort": plane.port}}}


def _joined(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _arguments(flags: Mapping[str, object]) -> list[dict[str, str]]:
    """Flags as arguments; one with several values is repeated for each."""
    return [
        {"name": name, "value": str(each)}
        for name, value in flags.items()
        for each in (value if isinstance(value, tuple) else (value,))
    ]


def _volume(name: str, path: str, kind: str, *, read_only: bool) -> Object:
    return {"name": name, "hostPath": path, "mountPath": path, "pathType": kind, "readOnly": read_only}


def _same_labels(pool: NodePool) -> dict[str, str]:
    return _same([group.labels for group in pool.groups])


def _same(labels: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The labels with the same value in all of them."""
    first = labels[0] if labels else {}
    return {key: value for key, value in first.items() if all(each.get(key) == value for each in labels)}


def _kubelets(site: PhysicalSite) -> list[PhysicalNode]:
    return [node for node in site.nodes if node.runs_pods]


def _kubelet_files(cluster: Cluster, site_nodes: Mapping[str, Sequence[PhysicalNode]]) -> dict[str, str]:
    """One for each pool and for each hardware configuration at a site: 5,000 machines have few
    configurations."""
    files = {
        f"kubelet/pools/{pool.name}.yaml": to_yaml(
            [_kubelet(cluster, pool.reserved, pool.taints)],
            _KUBELET.format(what=f"a machine of the pool {pool.name}")
            + "\nA machine works out from its own size what is kept from pods; this is the smallest type's.",
        )
        for pool in cluster.pools
    }
    for site, nodes in site_nodes.items():
        shapes: dict[tuple[int, int, tuple[Taint, ...]], list[PhysicalNode]] = {}
        for node in nodes:
            shapes.setdefault((node.cpus, node.memory_mib, node.taints), []).append(node)
        for number, ((cpus, memory, taints), alike) in enumerate(shapes.items(), start=1):
            name = f"{cpus}-cpus-{memory // 1024}-gib"
            again = f"-{number}" if f"kubelet/sites/{site}/{name}.yaml" in files else ""
            first, more = alike[0], len(alike) - 1
            what = f"{first.name} and {more} more" if more else first.name
            files[f"kubelet/sites/{site}/{name}{again}.yaml"] = to_yaml(
                [_kubelet(cluster, first.reserved, taints)], _KUBELET.format(what=what)
            )
    return files


def _kubelet(cluster: Cluster, reserved: Reserved, taints: Sequence[Taint]) -> Object:
    settings = cluster.kubernetes
    return kubelet.own(reserved, taints, pods=settings.pods_per_node, eviction=settings.eviction)


def _plane(cluster: Cluster) -> ControlPlane:
    assert cluster.control_plane is not None, "only a cluster with masters is rendered"
    return cluster.control_plane


@cache
def audit_policy() -> str:
    """The audit policy, which exists only as the cookbook's file; its first line says which program writes
    it there."""
    lines = _POLICY.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(lines[1:])
