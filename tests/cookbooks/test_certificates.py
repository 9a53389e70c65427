"""kubernetes: when a master's certificates are near their end, by kubeadm's own word."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cookbooks.kitchen import run
from cookbooks.masters import KUBEADM_CONFIG, python
from kube_tools import need


def ending(listed: dict[str, Any], now: datetime) -> Any:
    """Of kubeadm's list: the certificates to renew, and when the first one ends."""
    script = """
from datetime import datetime
from kubernetes_node import certificates
found = certificates.ending(given["listed"], datetime.fromisoformat(given["now"]), 60)
answer = [found, certificates.first_end(given["listed"]).isoformat()]
"""
    return python(script, {"listed": listed, "now": now.isoformat()})


def test_certificates_are_renewed_before_they_end_and_not_when_they_are_new(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(KUBEADM_CONFIG.format(endpoint="192.0.2.10:6443", pki=tmp_path / "pki"))
    run(need("kubeadm"), "init", "phase", "certs", "all", "--config", config)
    listed = json.loads(
        run(need("kubeadm"), "certs", "check-expiration", "--config", config, "--output", "json")
    )
    now = datetime.now(UTC)
    fresh, first = ending(listed, now)
    assert fresh == []
    assert timedelta(days=364) < datetime.fromisoformat(first) - now <= timedelta(days=366)
    old, _ = ending(listed, now + timedelta(days=310))
    # The kubeconfigs are of no phase of certificates: they are not there, and are left out.
    assert {"apiserver", "apiserver-etcd-client", "etcd-server", "front-proxy-client"} <= {*old}
    assert "admin.conf" not in old


def test_prometheus_is_told_when_they_end(tmp_path: Path) -> None:
    script = """
from datetime import datetime, timezone
from pathlib import Path
from kubernetes_node import certificates
from kubernetes_node.settings import Paths
certificates.record(Paths(Path(given)), datetime(2027, 1, 2, tzinfo=timezone.utc))
"""
    python(script, str(tmp_path))
    assert not list(tmp_path.iterdir()), "nobody collects figures here"
    folder = tmp_path / "var/lib/prometheus/node-exporter"
    folder.mkdir(parents=True)
    python(script, str(tmp_path))
    [file] = folder.iterdir()
    assert file.suffix == ".prom"
    assert "causeway_certificates_end_time_seconds 1798848000" in file.read_text().splitlines()


@pytest.mark.parametrize(("minutes", "over"), [(10, False), (40, True)])
def test_a_turn_that_nobody_renews_is_taken_over(minutes: int, over: bool) -> None:
    renewed = datetime.now(UTC) - timedelta(minutes=minutes)
    spec = {"renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "leaseDurationSeconds": 1800}
    script = """
from datetime import datetime, timezone
from kubernetes_node.lease import forgotten
answer = forgotten(given, datetime.now(timezone.utc))
"""
    assert python(script, {"spec": spec}) is over


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
    script = """
from kubernetes_node import certificates
certificates.well = lambda url: url == certificates.HEALTH["kube-apiserver"]
answer = certificates.main(["--restart", "kube-apiserver"])
"""
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    assert python(script, environment={"PATH": path}) == 0
    assert (tmp_path / "said").read_text() == "stop --timeout 30 old\n"
