"""The file system of a master, and the cookbook's programs run on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cookbooks.kitchen import COOKBOOKS

PROGRAMS = COOKBOOKS / "kubernetes" / "files"
PARAMETER = "/causeway/research/node/kubernetes-join"
"""Where the tests' masters leave what nodes need to join."""

KUBEADM_CONFIG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.2
controlPlaneEndpoint: {endpoint}
certificatesDir: {pki}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {{advertiseAddress: 192.0.2.10}}
nodeRegistration: {{name: master-1, criSocket: "unix:///run/containerd/containerd.sock"}}
"""


def settle(root: Path, **settings: Any) -> None:
    """Write the settings of the master whose file system is ``root``; these go over defaults."""
    defaults = {
        "cluster": "research",
        "name": "master-1",
        "endpoint": "api.research.internal:6443",
        "masters": {"master-1": "master-1.research.internal"},
        "snapshots": {},
        "join": {"parameter": None, "region": None},
        "certificates": {"days": 60, "lease": "x", "namespace": "kube-system"},
    }
    file = root / "etc/causeway/control-plane.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(defaults | settings))


def program(name: str, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program of the package `kubernetes_node`; ``environment`` goes over the tests' own."""
    return subprocess.run(
        [sys.executable, "-B", "-m", f"kubernetes_node.{name}", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(PROGRAMS), **environment},
        timeout=300,
    )


def python(script: str, given: Any = None, environment: Mapping[str, str] = os.environ) -> Any:
    """What a script that imports `kubernetes_node` leaves in ``answer``, through JSON; it has ``given``."""
    before, after = (
        "import json, sys\ngiven = json.load(sys.stdin)\nanswer = None",
        "print(json.dumps(answer))",
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", f"{before}\n{script}\n{after}"],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "PYTHONPATH": str(PROGRAMS)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
