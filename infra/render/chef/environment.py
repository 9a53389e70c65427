"""The environment: attributes common to all machines, and the versions of cookbooks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from infra.catalogue import cookbooks
from infra.errors import RenderError
from infra.files import Files
from infra.model import Cluster, Outputs, to_json
from infra.model.kubernetes import Kubernetes
from infra.model.platform import Copy, EfsMount, Mount, NfsExport, NfsMount, S3Mount
from infra.model.software import Pin
from infra.render.chef import objects
from infra.render.kubernetes import kubeadm
from infra.render.kubernetes.nodes import MIRROR
from infra.shipped_files import ROOT


def render(cluster: Cluster, outputs: Outputs) -> Files:
    """``environments/<env>.json``."""
    name = cluster.environment
    pins = {cookbook: f"= {version}" for cookbook, version in versions().items()}
    description = f"The cluster {cluster.name}, environment {name}."
    made = objects.environment(name, description, pins, attributes(cluster, outputs))
    return {f"environments/{name}.json": to_json(made)}


def attributes(cluster: Cluster, outputs: Outputs) -> dict[str, Any]:
    """Default attributes of every machine, by cookbook."""
    return {
        "causeway": _cluster(cluster),
        "base": _base(cluster),
        "container_runtime": {
            "version": _version(cluster, "containerd"),
            "registry_mirrors": _registry_mirrors(cluster),
        },
        "kubernetes": _kubernetes(cluster, outputs),
        "storage": {
            "sites": {site: _storage(cluster, outputs, site) for site in cluster.storage.mounts},
            **(
                {"server": {"home_quota": cluster.storage.home_quota_mib}}
                if cluster.storage.home_quota_mib is not None
                else {}
            ),
        },
        "ssh_node": {"access": _ssh_access(cluster)},
        "software": {pin.name: _pin(pin) for pin in cluster.software},
    }


def _cluster(cluster: Cluster) -> dict[str, Any]:
    network = cluster.network
    return {
        "cluster": cluster.name,
        "environment": cluster.environment,
        "domain": cluster.domain,
        "api": _endpoint(cluster),
        "private": [str(block) for block in network.private],
        "pods": str(network.pods),
        "services": str(network.services),
        "cluster_dns": str(cluster.access.vpn.cluster_resolver),
        "supernet": str(network.supernet),
    }


def _base(cluster: Cluster) -> dict[str, Any]:
    access, machines = cluster.access, cluster.machines
    return {
        "time_servers": list(machines.time_servers),
        "sudo_groups": [group.name for group in access.groups if group.sudo],
        # The user who sets up a machine must not be locked out.
        "login_groups": [access.admin.login, *access.node_groups],
        "packages": list(machines.packages),
        "unattended_upgrades": machines.unattended_upgrades,
        "journald": {"max_use": "1G", "retention": "30day"},
        "node_exporter": True,
        "users_data_bag": "users",
        "groups_data_bag": "groups",
    }


def _registry_mirrors(cluster: Cluster) -> dict[str, list[str]]:
    """The mirror on the node first, which answers immediately and does not forward requests, then the spec's
    mirrors."""
    stated = {registry: list(mirrors) for registry, mirrors in cluster.machines.registry_mirrors.items()}
    if not cluster.kubernetes.has("registry-mirror"):
        return stated
    return {name: [MIRROR, *mirrors] for name, mirrors in {"_default": [], **stated}.items()}


def _kubernetes(cluster: Cluster, outputs: Outputs) -> dict[str, Any]:
    kubernetes = cluster.kubernetes
    return {
        **kubeadm.attributes(cluster, outputs),
        "egress": _egress(kubernetes),
        "version": kubernetes.version,
        "package_version": _package_version(kubernetes),
        "pods_per_node": kubernetes.pods_per_node,
        "endpoint": _endpoint(cluster),
        "audit": kubernetes.audit,
        "cluster_domain": cluster.access.vpn.cluster_domain,
    }


def _egress(kubernetes: Kubernetes) -> dict[str, Any]:
    egress = kubernetes.egress
    return {
        "overlay": kubernetes.overlay.interface,
        "refused": {protocol: list(ports) for protocol, ports in egress.refused.items()},
        "machines": [str(block) for block in egress.machines],
        "endpoints": [str(block) for block in egress.endpoints],
        "allowed": [
            {"block": str(each.block), "protocol": each.protocol, "ports": list(each.ports)}
            for each in egress.allowed
        ],
    }


def _package_version(kubernetes: Kubernetes) -> str:
    """A version pattern for apt_preferences(5); the number is followed by the package's revision."""
    pinned = kubernetes.release != kubernetes.version
    return f"{kubernetes.release}-*" if pinned else f"{kubernetes.release}.*"


def _endpoint(cluster: Cluster) -> str | None:
    plane = cluster.control_plane
    return f"{plane.endpoint}:{plane.port}" if plane else None


def _ssh_access(cluster: Cluster) -> dict[str, list[str]]:
    """Host name → groups: cloud machines have no node object of their own that could contain them."""
    groups = {fqdn: each.groups for each in cluster.access.ssh for fqdn in each.nodes}
    return {node.hostname: list(groups[node.fqdn]) for node in cluster.ssh_nodes}


def _storage(cluster: Cluster, outputs: Outputs, site: str) -> dict[str, Any]:
    return {
        "mounts": [_mount(mount, outputs, site) for mount in cluster.storage.mounts[site]],
        "exports": [_export(export) for export in cluster.storage.nfs if export.site == site],
        "copies": [
            _copy(copy) for copy in cluster.storage.copies if copy.site == site and copy.kind == "nfs"
        ],
    }


def _mount(mount: Mount, outputs: Outputs, site: str) -> dict[str, Any]:
    common = {"path": mount.path, "kind": mount.kind, "name": mount.name}
    match mount:
        case NfsMount():
            return {
                **common, "read_only": mount.read_only, "server": mount.server, "export": mount.export,
            }  # fmt: skip
        case EfsMount():
            ids = outputs.file_systems.get(site, {}).get(mount.name)
            point = ids.access_points.get(mount.access_point) if ids and mount.access_point else None
            return {
                **common,
                "read_only": False,
                "file_system": ids.id if ids else None,
                "region": mount.region,
                "access_point": point,
                "tls": True,
            }
        case S3Mount():
            return {
                **common,
                "read_only": mount.read_only,
                "bucket": mount.bucket,
                "region": mount.region,
                "prefix": "",
            }


def _export(export: NfsExport) -> dict[str, Any]:
    return {
        "name": export.name,
        "export": export.export,
        "clients": [str(block) for block in export.clients],
        "read_only": export.read_only,
        "volumes": export.storage_class is not None,
        "node": export.node,
    }


def _copy(copy: Copy) -> dict[str, Any]:
    return {
        "name": copy.name,
        "source": copy.export,
        "bucket": copy.bucket,
        "region": copy.region,
        "prefix": copy.prefix,
        "at": f"{copy.hour:02}:{copy.minute:02}",
        "node": copy.node,
    }


def _version(cluster: Cluster, name: str) -> str | None:
    return next(pin.version for pin in cluster.software if pin.name == name)


def _pin(pin: Pin) -> dict[str, Any]:
    archive = {"url": pin.url, "sha256": dict(pin.sha256)} if pin.url is not None else {}
    return {"version": pin.version, **archive}


COOKBOOKS: Final = ROOT / "cookbooks"


@cache
def versions() -> Mapping[str, str]:
    """Cookbook → version from its ``metadata.rb``. The cookbook is named by its folder.

    Raises ``RenderError`` for metadata without a plain version.
    """
    found = {}
    for metadata in sorted(COOKBOOKS.glob("*/metadata.rb")):
        version = cookbooks.version(metadata.read_text(encoding="utf-8"))
        if version is None:
            raise RenderError(f"cookbooks/{metadata.parent.name}/metadata.rb states no version")
        found[metadata.parent.name] = version
    return found
