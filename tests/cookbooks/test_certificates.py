"""kubernetes: when a master's certificates are near their end, by kubeadm's own word."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cookbooks.etcd_lab import PROGRAMS

CONFIG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
certificatesDir: {pki}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {{advertiseAddress: 192.0.2.10}}
nodeRegistration: {{name: master-1, criSocket: "unix:///run/containerd/containerd.sock"}}
"""


def told(listed: dict[str, Any], now: datetime, days: int = 60) -> Any:
    """What the program makes of kubeadm's list."""
    script = (
        "import json, sys\n"
        "from datetime import datetime\n"
        "from kubernetes_node import certificates\n"
        "asked = json.load(sys.stdin)\n"
        "now = datetime.fromisoformat(asked['now'])\n"
        "found = certificates.ending(asked['listed'], now, asked['days'])\n"
        "print(json.dumps([found, certificates.first_end(asked['listed']).isoformat()]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", script],
        input=json.dumps({"listed": listed, "now": now.isoformat(), "days": days}),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(PROGRAMS)},
    )
    return json.loads(done.stdout)


def test_certificates_are_renewed_before_they_end_and_not_when_they_are_new(tmp_path: Path) -> None:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    kubeadm = shutil.which("kubeadm", path=os.pathsep.join([assets, os.environ["PATH"]]))
    if kubeadm is None:
        pytest.skip("kubeadm is not here: put it on the PATH, or into $KUBEBUILDER_ASSETS")
    pki, config = tmp_path / "pki", tmp_path / "config.yaml"
    config.write_text(CONFIG.format(pki=pki))
    phase = [kubeadm, "init", "phase", "certs", "all", "--config", str(config)]
    subprocess.run(phase, check=True, capture_output=True)
    listing = [kubeadm, "certs", "check-expiration", "--config", str(config), "--output", "json"]
    listed = json.loads(subprocess.run(listing, check=True, capture_output=True, text=True).stdout)

    now = datetime.now(UTC)
    fresh, first = told(listed, now)
    assert fresh == []
    assert timedelta(days=364) < datetime.fromisoformat(first) - now <= timedelta(days=366)
    old, _ = told(listed, now + timedelta(days=310))
    # The kubeconfigs are of no phase of certificates: they are not there, and are left out.
    assert {"apiserver", "apiserver-etcd-client", "etcd-server", "front-proxy-client"} <= {*old}
    assert "admin.conf" not in old


def test_prometheus_is_told_when_they_end(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from datetime import datetime, timezone\n"
        "from pathlib import Path\n"
        "from kubernetes_node import certificates\n"
        "from kubernetes_node.settings import Paths\n"
        "certificates.record(Paths(Path(sys.argv[1])), datetime(2027, 1, 2, tzinfo=timezone.utc))\n"
    )

    def tell() -> None:
        env = {**os.environ, "PYTHONPATH": str(PROGRAMS)}
        subprocess.run([sys.executable, "-B", "-c", script, str(tmp_path)], check=True, env=env)

    tell()
    assert not list(tmp_path.iterdir()), "nobody collects figures here"
    folder = tmp_path / "var/lib/prometheus/node-exporter"
    folder.mkdir(parents=True)
    tell()
    [file] = folder.iterdir()
    assert file.suffix == ".prom"
    assert "causeway_certificates_end_time_seconds 1798848000" in file.read_text().splitlines()


@pytest.mark.parametrize(("minutes", "over"), [(10, False), (40, True)])
def test_a_turn_that_nobody_renews_is_taken_over(minutes: int, over: bool) -> None:
    renewed = datetime.now(UTC) - timedelta(minutes=minutes)
    spec = {"renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "leaseDurationSeconds": 1800}
    script = (
        "import json, sys\n"
        "from datetime import datetime, timezone\n"
        "from kubernetes_node.lease import forgotten\n"
        "print(json.dumps(forgotten(json.load(sys.stdin), datetime.now(timezone.utc))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", script],
        input=json.dumps({"spec": spec}),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(PROGRAMS)},
    )
    assert json.loads(done.stdout) is over


def test_one_pod_is_started_again_and_waited_for(tmp_path: Path) -> None:
    """As a rotation of the key at rest asks for it: the old container ends, and the API server is well."""
    crictl = tmp_path / "crictl"
    crictl.write_text(
        f"""#!/bin/sh
case "$1" in
stop) echo "$@" >>{tmp_path}/said; echo new >{tmp_path}/id ;;
ps) cat {tmp_path}/id ;;
esac
"""
    )
    crictl.chmod(0o755)
    (tmp_path / "id").write_text("old\n")
    script = (
        "import sys\n"
        "from kubernetes_node import certificates\n"
        "certificates.well = lambda url: url == certificates.HEALTH['kube-apiserver']\n"
        "sys.exit(certificates.main(['--restart', 'kube-apiserver']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(PROGRAMS)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "kube-apiserver was started again\n"
    assert (tmp_path / "said").read_text() == "stop --timeout 30 old\n"
