"""Kueue itself, with its chart's kinds and webhooks and the rendered configuration and queues."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from autoscaler.kube.clusters import Cluster, Object
from kube_tools import need, templated
from ports import reserved
from render.kubernetes.policy_world import collection
from waiting import until

from infra.autoscaler.kube.client import KubeError
from infra.drive.kubernetes import certificates
from infra.model import NO_OUTPUTS
from infra.model import Cluster as Spec
from infra.render.kubernetes import access, charts, guards, identities, namespaces, queues, scheduling
from infra.render.kubernetes.charts.queues import configuration

ACCOUNT = "system:serviceaccount:kueue-system:kueue-controller-manager"
RIGHTS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_APPLY = "application/apply-patch+yaml"


@contextmanager
def kueue(admin: Cluster, spec: Spec, folder: Path) -> Iterator[None]:
    """The controller with the rights of its chart, its kinds, and all that is rendered for it. Skips without
    it, or its chart."""
    program = need("kueue")
    now, life = datetime.now(UTC), timedelta(hours=12)
    authority = certificates.authority("kueue", now)
    pair = certificates.server(authority, "kueue", ["localhost"], now, life)
    # Where Kueue looks for that of its metrics, without a setting.
    serving = folder / "etc/kueue/metrics/certs"
    serving.mkdir(parents=True)
    (serving / "tls.crt").write_text(pair.certificate)
    (serving / "tls.key").write_text(pair.key)
    (folder / "etc/hosts").write_text("127.0.0.1 localhost\n")
    # An /etc of its own, and begun again until its kinds are served, as its kubelet would.
    alone = ["unshare", *(["--map-root-user"] if os.geteuid() else []), "--mount", "--", "sh", "-c"]
    alone += ['mount --bind "$0" /etc && until "$@"; do sleep 0.5; done', str(folder / "etc")]
    with ExitStack() as stack:
        webhooks, health, metrics = stack.enter_context(reserved(3))
        chart = templated("kueue", charts.values(spec)["kueue"], "--namespace=kueue-system")
        for document in chart:
            if document["kind"] == "CustomResourceDefinition":
                document["spec"].pop("conversion", None)  # We speak one version.
                apply(admin, document)
        admin.ensure("/api/v1/namespaces", {"metadata": {"name": "kueue-system"}})
        for document in chart:
            if document["kind"] in RIGHTS:
                until(partial(applied, admin, document))
        config = configuration(spec) | {
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
            "metrics": {"bindAddress": f"127.0.0.1:{metrics}"},
            "webhook": {"port": webhooks, "host": "127.0.0.1", "certDir": str(serving)},
            # One process, with a certificate of ours, and no Service before it.
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
        }
        (folder / "kueue.yaml").write_text(yaml.safe_dump(config))
        log = stack.enter_context((folder / "kueue.log").open("ab"))
        process = subprocess.Popen(
            [*alone, program, "--config=kueue.yaml", "--feature-gates=VisibilityOnDemand=false"],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder,
            env={**os.environ, "KUBECONFIG": str(_as_itself(admin))}, start_new_session=True,
        )  # fmt: skip
        stack.callback(process.wait)
        stack.callback(os.killpg, process.pid, signal.SIGKILL)
        for document in chart:
            if document["kind"] in WEBHOOKS:
                apply(admin, here(document, webhooks, authority.certificate))
        for module in (namespaces, scheduling, access, guards, identities, queues):
            for documents in module.objects(spec, NO_OUTPUTS).values():
                for document in documents:
                    until(partial(applied, admin, document))
        for queue in queues.objects(spec)["ways-in.yaml"]:
            path = f"{collection(queue)}/{queue['metadata']['name']}"
            until(partial(_active, admin, path))
        yield


def _as_itself(admin: Cluster) -> Path:
    """A kubeconfig of Kueue's account, whose tokens nobody makes here: beside the files that it names."""
    config = yaml.safe_load(admin.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] |= {"as": ACCOUNT, "as-groups": ["system:serviceaccounts", "system:authenticated"]}
    path = admin.kubeconfig.with_name("kueue.yaml")
    path.write_text(yaml.safe_dump(config))
    return path


def _active(admin: Cluster, path: str) -> bool:
    said = (admin.get(path) or {}).get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == ("Active", "True") for each in said)


def apply(admin: Cluster, document: Object) -> None:
    """As kubectl does on the server's side."""
    path = f"{collection(document)}/{document['metadata']['name']}?fieldManager=causeway&force=true"
    admin.client.call("PATCH", path, body=document, content=_APPLY)


def applied(admin: Cluster, document: Object) -> bool:
    """False while its kind, its namespace or its webhook is still to come."""
    try:
        apply(admin, document)
    except KubeError as problem:
        if any(
            word in str(problem) for word in ("not yet ready", "failed calling webhook", "404", "not found")
        ):
            return False
        raise
    return True


def here(webhooks: Object, port: int, authority: str) -> Object:
    """Its webhooks at a port of this machine instead of a Service."""
    webhooks["metadata"].pop("namespace", None)  # The chart says one of what has none.
    for hook in webhooks["webhooks"]:
        path = hook["clientConfig"].pop("service")["path"]
        hook["clientConfig"] = {
            "url": f"https://localhost:{port}{urlsplit(path).path}",
            "caBundle": base64.b64encode(authority.encode()).decode(),
        }
    return webhooks
