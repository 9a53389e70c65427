"""What a master has done, noted in a ConfigMap of kube-system, which `invoke cluster.status` reads."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from kubernetes_node.command import attempt
from kubernetes_node.settings import Failed, Paths, Settings


def note(paths: Paths, settings: Settings, name: str, data: Mapping[str, str]) -> None:
    """Put it there; each master has fields of its own. Where that fails it is said, and no more."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "kube-system"},
        "data": dict(data),
    }
    apply = ("apply", "--server-side", "--force-conflicts", f"--field-manager={name}-{settings.name}")
    try:
        ended = attempt(
            ["kubectl", "--kubeconfig", paths.admin, *apply, "--filename", "-"], json.dumps(body), seconds=60
        )
        problem = ended.stderr.strip() if ended.returncode else ""
    except Failed as failure:
        problem = str(failure)
    if problem:
        print(f"{name}: not noted in the cluster: {problem}", file=sys.stderr)
