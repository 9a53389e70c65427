"""Kueue and JobSet themselves, with their charts' kinds and webhooks, on a control plane of tests."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from kube.api import Api, Object, applied, path_of
from kube.plane import Plane
from kube_tools import need, templated
from ports import reserved
from waiting import until

from infra.drive.kubernetes import certificates
from infra.drive.kubernetes.certificates import Pair
from infra.model import Cluster
from infra.render.kubernetes import charts, objects
from infra.render.kubernetes.charts.queues import configuration

ACCOUNT = "system:serviceaccount:kueue-system:kueue-controller-manager"
RIGHTS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


@contextmanager
def kueue(plane: Plane, spec: Cluster) -> Iterator[None]:
    """The controller with the rights of its chart, its kinds, and all that is rendered for it. Skips without
    it, or its chart."""
    need("kueue")
    folder = plane.folder / "kueue"
    # Where Kueue looks for that of its metrics, without a setting.
    authority = _authority("kueue", serving := folder / "etc/kueue/metrics/certs")
    (folder / "etc/hosts").write_text("127.0.0.1 localhost\n")
    chart = templated("kueue", charts.values(spec)["kueue"], "--namespace=kueue-system")
    with ExitStack() as stack:
        webhooks, health, metrics = stack.enter_context(reserved(3))
        kinds(plane.admin, chart)
        plane.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}})
        plane.admin.apply_all({"rights": [each for each in chart if each["kind"] in RIGHTS]})
        config = configuration(spec) | _alone(webhooks, health, metrics)
        config["webhook"]["certDir"] = str(serving)
        (folder / "kueue.yaml").write_text(yaml.safe_dump(config))
        words = ["--config=kueue.yaml", "--feature-gates=VisibilityOnDemand=false"]
        way = {"KUBECONFIG": str(_as_itself(plane))}
        stack.enter_context(
            plane.program(
                "kueue", *words, before=_seeing(folder / "etc", "/etc"), cwd=folder, environment=way
            )
        )
        bring_webhooks(plane.admin, chart, webhooks, authority)
        for part in ("namespaces", "scheduling", "access", "identities", "guards", "queues"):
            plane.admin.apply_all(objects(part, spec))
        for queue in objects("queues", spec)["ways-in.yaml"]:
            until(partial(_active, plane.admin, path_of(queue)))
        yield


@contextmanager
def jobset(plane: Plane) -> Iterator[None]:
    """The controller as an administrator, and its kinds. Skips without it, or its chart."""
    need("jobset")
    folder = plane.folder / "jobset"
    authority = _authority("jobset", folder / "serving-certs")
    chart = templated("jobset", None, "--namespace=jobset-system")
    with ExitStack() as stack:
        webhooks, health = stack.enter_context(reserved(2))
        config = {"apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration"}
        (folder / "jobset.yaml").write_text(yaml.safe_dump(config | _alone(webhooks, health, 0)))
        kinds(plane.admin, chart)
        words = [f"--config={folder}/jobset.yaml", f"--kubeconfig={plane.kubeconfig}"]
        # It looks for its certificate in this place alone.
        before = _seeing(folder, "/tmp/k8s-webhook-server")
        stack.enter_context(plane.program("jobset", *words, before=before))
        bring_webhooks(plane.admin, chart, webhooks, authority)
        yield


def kinds(admin: Api, chart: Sequence[Object]) -> None:
    """A chart's, each in one version: nobody is there to convert."""
    for each in chart:
        if each["kind"] == "CustomResourceDefinition":
            admin.apply({**each, "spec": {**each["spec"], "conversion": {"strategy": "None"}}})


def bring_webhooks(admin: Api, chart: Sequence[Object], port: int, authority: Pair) -> None:
    """A chart's, at a port of this machine instead of a Service."""
    for each in chart:
        if each["kind"] in WEBHOOKS:
            each["metadata"].pop("namespace", None)  # The chart says one of what has none.
            for hook in each["webhooks"]:
                path = hook["clientConfig"].pop("service")["path"]
                hook["clientConfig"] = {
                    "url": f"https://localhost:{port}{urlsplit(path).path}",
                    "caBundle": base64.b64encode(authority.certificate.encode()).decode(),
                }
            until(partial(applied, admin, each))


def _authority(name: str, folder: Path) -> Pair:
    """Whoever signs the certificate for webhooks in ``folder``."""
    now, life = datetime.now(UTC), timedelta(hours=12)
    authority = certificates.authority(name, now)
    pair = certificates.server(authority, name, ["localhost"], now, life)
    folder.mkdir(parents=True)
    (folder / "tls.crt").write_text(pair.certificate)
    (folder / "tls.key").write_text(pair.key)
    return authority


def _alone(webhooks: int, health: int, metrics: int) -> dict[str, Object]:
    """Configuration of one process, with a certificate of ours, and no Service before it."""
    return {
        "webhook": {"port": webhooks, "host": "127.0.0.1"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": f"127.0.0.1:{metrics}" if metrics else "0"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }


def _seeing(folder: Path, at: str) -> list[str]:
    """Before a program: it sees a folder at another place, alone, and is begun again until its kinds are
    served, as its kubelet would."""
    script = f'mkdir -p {at} && mount --bind "$0" {at} && until "$@"; do sleep 0.2; done'
    user = ["--map-root-user"] if os.geteuid() else []
    return ["unshare", *user, "--mount", "--", "sh", "-c", script, str(folder)]


def _as_itself(plane: Plane) -> Path:
    """A kubeconfig of Kueue's account, whose pod is not here."""
    admin = yaml.safe_load(plane.kubeconfig.read_text())["users"][0]["user"]
    groups = ["system:serviceaccounts", "system:authenticated"]
    return plane.kubeconfig_with("kueue", **admin, **{"as": ACCOUNT, "as-groups": groups})


def _active(admin: Api, path: str) -> bool:
    found: Mapping[str, Object] = admin.find(path) or {}
    said = found.get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == ("Active", "True") for each in said)
