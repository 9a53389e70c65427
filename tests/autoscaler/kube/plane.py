"""A control plane with what acts in it: a real API server, Kubernetes' own controllers and its scheduler."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from autoscaler.kube.account import account
from autoscaler.kube.clusters import Cluster
from drive.kubernetes.apiserver import NAME, running
from kube_tools import need
from stores import local_store

from infra.drive.kubernetes import access, secrets
from infra.drive.kubernetes.access import Endpoint
from infra.model import Cluster as Spec

_CONTROLLERS = (
    "job-controller",
    "deployment-controller",
    "replicaset-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "pod-garbage-collector-controller",
    "resourcequota-controller",
)
"""Not the one of nodes' lifecycle: here kubelets say themselves when they are gone."""


@contextmanager
def planes(
    folder: Path, spec: Spec | None = None, controllers: Sequence[str] = ()
) -> Iterator[tuple[Cluster, Path]]:
    """An administrator's way in, and the kubeconfig of the autoscaler's own account with its own rights.

    ``spec``: whose autoscaler it is; without, the golden ``research``. ``controllers``: further ones of
    Kubernetes. Skips where a program is missing.
    """
    programs = {name: need(name) for name in ("kube-controller-manager", "kube-scheduler")}
    keys = secrets.made(
        local_store(folder),
        datetime.now(UTC),
    )
    with (
        running(folder, keys) as server,
        access.opened(folder / "build", Endpoint(NAME, server.address), keys.ca) as admin,
        ExitStack() as stack,
    ):
        cluster = Cluster.of(admin.kubeconfig)
        common = ["--leader-elect=false", "--secure-port=0", f"--kubeconfig={admin.kubeconfig}"]
        more = {"kube-controller-manager": [f"--controllers={','.join((*_CONTROLLERS, *controllers))}"]}
        for name, program in programs.items():
            log = stack.enter_context((folder / f"{name}.log").open("ab"))
            process = subprocess.Popen(
                [program, *common, *more.get(name, [])], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield cluster, stack.enter_context(account(cluster, spec))
