"""The token issuers that API servers accept: in kubeadm's configuration, and as running on each master.

Kubernetes, "Reconfiguring a kubeadm cluster": first the ConfigMap is changed, then each master's manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import yaml

from infra.drive.kubernetes.api import Api
from infra.errors import DriveError

WRITE: Final = """\
set -eu
file=$(mktemp)
trap 'rm -f "$file"' EXIT
printf '%s' "$1" >"$file"
kubeadm init phase control-plane apiserver --config "$file"
"""
"""A script for a master, with kubeadm's configuration as its argument: it writes the manifest of the API
server, which the kubelet then restarts."""

_ISSUER: Final = "service-account-issuer"
_FLAGS: Final = (_ISSUER, "service-account-jwks-uri", "api-audiences")
_CONFIG: Final = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config"
_MAPS: Final = "/api/v1/namespaces/kube-system/configmaps"
_SIGNER: Final = "causeway-issuer"
"""The ConfigMap with the issuer that all masters sign as, and the time since when."""


def configured(api: Api, own: str) -> tuple[str, ...]:
    """The issuers in kubeadm's configuration, used for further masters; ``own`` if none are set."""
    stated = _server(_configuration(api)).get("extraArgs") or ()
    return tuple(each["value"] for each in stated if each["name"] == _ISSUER) or (own,)


def configure(api: Api, arguments: Iterable[Mapping[str, str]]) -> None:
    """Replace the arguments in kubeadm's configuration."""
    configuration = _configuration(api)
    server = _server(configuration)
    others = [each for each in server.get("extraArgs") or () if each["name"] not in _FLAGS]
    configuration["apiServer"] = {**server, "extraArgs": [*others, *arguments]}
    text = yaml.safe_dump(configuration, sort_keys=False)
    api.patch(_CONFIG, {"data": {"ClusterConfiguration": text}})


def running(api: Api, master: str) -> tuple[str, ...]:
    """The issuers of a master's running API server; empty if it is not running or not ready."""
    pod = _pod(api, master)
    conditions = (pod or {}).get("status", {}).get("conditions") or ()
    if not any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
        return ()
    return tuple(_values(pod, _ISSUER))


def configuration_of(api: Api, master: str) -> str:
    """kubeadm's configuration for writing a master's manifest: the cluster's, with the master's address."""
    pod = _pod(api, master)
    (address,), (port,) = _values(pod, "advertise-address"), _values(pod, "secure-port")
    configuration = _configuration(api)
    local = {
        "apiVersion": configuration["apiVersion"],
        "kind": "InitConfiguration",
        "nodeRegistration": {"name": master, "criSocket": "unix:///run/containerd/containerd.sock"},
        "localAPIEndpoint": {"advertiseAddress": address, "bindPort": int(port)},
    }
    return yaml.safe_dump_all([local, configuration], sort_keys=False)


def signer(api: Api) -> tuple[str, datetime] | None:
    """The issuer that all masters sign as, and since when; None if not recorded."""
    found = api.find(f"{_MAPS}/{_SIGNER}")
    return (found["data"]["issuer"], datetime.fromisoformat(found["data"]["since"])) if found else None


def note_signer(api: Api, issuer: str, since: datetime) -> None:
    """Record the issuer. An earlier one may be removed once its last token has expired."""
    data = {"issuer": issuer, "since": since.isoformat()}
    if api.find(f"{_MAPS}/{_SIGNER}") is not None:
        api.patch(f"{_MAPS}/{_SIGNER}", {"data": data})
        return
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _SIGNER}, "data": data}
    api.create(_MAPS, body)


def _configuration(api: Api) -> dict[str, Any]:
    found = api.find(_CONFIG)
    if found is None:
        raise DriveError("the cluster has no ConfigMap kube-system/kubeadm-config: kubeadm did not create it")
    configuration: dict[str, Any] = yaml.safe_load(found["data"]["ClusterConfiguration"])
    return configuration


def _server(configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    return configuration.get("apiServer") or {}


def _pod(api: Api, master: str) -> dict[str, Any] | None:
    """The API server's mirror pod."""
    return api.find(f"/api/v1/namespaces/kube-system/pods/kube-apiserver-{master}")


def _values(pod: Mapping[str, Any] | None, flag: str) -> Sequence[str]:
    containers = pod["spec"]["containers"] if pod is not None else [{"command": []}]
    prefix = f"--{flag}="
    return [word.removeprefix(prefix) for word in containers[0]["command"] if word.startswith(prefix)]
