"""The issuers whose tokens API servers accept: as kubeadm keeps them for all masters, and as each runs with.

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
"""On a master, with kubeadm's configuration as argument: the manifest of its API server, which the kubelet
then starts again."""

_ISSUER: Final = "service-account-issuer"
_FLAGS: Final = (_ISSUER, "service-account-jwks-uri", "api-audiences")
_CONFIG: Final = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config"
_MAPS: Final = "/api/v1/namespaces/kube-system/configmaps"
_SIGNER: Final = "causeway-issuer"
"""The ConfigMap that says as which issuer all masters sign, and since when."""


def configured(api: Api, own: str) -> tuple[str, ...]:
    """As kubeadm would start one more master; ``own`` where nothing is said."""
    stated = _server(_configuration(api)).get("extraArgs") or ()
    return tuple(each["value"] for each in stated if each["name"] == _ISSUER) or (own,)


def configure(api: Api, arguments: Iterable[Mapping[str, str]]) -> None:
    """Replace what kubeadm keeps of them."""
    configuration = _configuration(api)
    server = _server(configuration)
    others = [each for each in server.get("extraArgs") or () if each["name"] not in _FLAGS]
    configuration["apiServer"] = {**server, "extraArgs": [*others, *arguments]}
    text = yaml.safe_dump(configuration, sort_keys=False)
    api.patch(_CONFIG, {"data": {"ClusterConfiguration": text}})


def running(api: Api, master: str) -> tuple[str, ...]:
    """What the API server of a master has as it runs; empty while it does not, or is not ready."""
    pod = _pod(api, master)
    conditions = (pod or {}).get("status", {}).get("conditions") or ()
    if not any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
        return ()
    return tuple(_values(pod, _ISSUER))


def configuration_of(api: Api, master: str) -> str:
    """What kubeadm needs to write the manifest of a master: what it keeps, and where that one listens."""
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
    """As which issuer all masters sign, and since when; None if that was never noted."""
    found = api.find(f"{_MAPS}/{_SIGNER}")
    return (found["data"]["issuer"], datetime.fromisoformat(found["data"]["since"])) if found else None


def note_signer(api: Api, issuer: str, since: datetime) -> None:
    """Record it: an earlier issuer may be removed once its last token has ended."""
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
    """The API server's, which the kubelet mirrors from its manifest."""
    return api.find(f"/api/v1/namespaces/kube-system/pods/kube-apiserver-{master}")


def _values(pod: Mapping[str, Any] | None, flag: str) -> Sequence[str]:
    containers = pod["spec"]["containers"] if pod is not None else [{"command": []}]
    prefix = f"--{flag}="
    return [word.removeprefix(prefix) for word in containers[0]["command"] if word.startswith(prefix)]
