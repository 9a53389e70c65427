"""New certificates of this master, before the old ones end, one master at a time.

kubeadm issues them for a year, and renews them with each upgrade: without an upgrade in that time, nothing
can connect to the cluster. A master's pods read them when they start, and are restarted one after another.
The kubelet renews its own; authorities live for ten years and are for people to replace.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from kubernetes_node import figures
from kubernetes_node.command import run
from kubernetes_node.lease import Lease
from kubernetes_node.note import note
from kubernetes_node.settings import UTC, Failed, Paths, Settings, read

HEALTH = {
    "etcd": "http://127.0.0.1:2381/health?serializable=true",
    "kube-apiserver": "https://127.0.0.1:6443/livez",
    "kube-controller-manager": "https://127.0.0.1:10257/healthz",
    "kube-scheduler": "https://127.0.0.1:10259/healthz",
}
"""Pods in the order in which they are started again, and where each says that it is well."""
TURN_SECONDS = 1800


def ending(listed: Mapping[str, Any], now: datetime, days: int) -> list[str]:
    """Certificates with fewer days left, of what `kubeadm certs check-expiration --output json` says.

    Those of other masters' making (``externallyManaged``) and those that are not there are left out.
    """
    last = now + timedelta(days=days)
    return sorted(
        each["name"]
        for each in listed["certificates"]
        if not each.get("externallyManaged") and not each.get("missing") and _ends(each) < last
    )


def first_end(listed: Mapping[str, Any]) -> datetime:
    """When the first of a master's certificates ends."""
    ends = [_ends(each) for each in listed["certificates"] if not each.get("missing")]
    if not ends:
        raise Failed("kubeadm finds no certificates: this machine is not a master")
    return min(ends)


def _ends(certificate: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(certificate["expirationDate"].replace("Z", "+00:00"))


def well(url: str) -> bool:
    """Whether a pod answers that it is. Its certificate is new, and its own."""
    import ssl
    from urllib.error import URLError
    from urllib.request import urlopen

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with urlopen(url, timeout=5, context=context) as answer:  # noqa: S310  # one of HEALTH
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def restart(pods: Iterable[str], seconds: float = 300) -> None:
    """Each pod's container ends, the kubelet starts another, and that one is well. Failed where it is not."""
    for pod in pods:
        old = set(run("crictl", "ps", "--quiet", "--name", f"^{pod}$").split())
        for container in sorted(old):
            run("crictl", "stop", "--timeout", "30", container)
        last = time.monotonic() + seconds
        while True:
            here = set(run("crictl", "ps", "--quiet", "--name", f"^{pod}$").split())
            if here - old and well(HEALTH[pod]):
                break
            if time.monotonic() > last:
                raise Failed(
                    f"{pod} is not well {seconds:.0f} s after it was started again: see `crictl logs`"
                )
            time.sleep(1)


def renew(paths: Paths, settings: Settings) -> list[str]:
    """The certificates that were near their end, and are new now."""
    wanted = settings.certificates
    text = run("kubeadm", "certs", "check-expiration", "--output", "json", "--kubeconfig", paths.admin)
    listed = json.loads(text)
    old, end = ending(listed, datetime.now(UTC), wanted["days"]), first_end(listed)
    record(paths, end)
    pending = paths.state / "certificates-renewed"
    if not old and not pending.exists():
        note(paths, settings, "causeway-certificates", {settings.name: end.isoformat()})
        return []
    turn = Lease(paths.admin, wanted["namespace"], wanted["lease"], settings.name, TURN_SECONDS)
    if not turn.take():
        print("another master renews its certificates; this one does tomorrow")
        return []
    # Remembered until all pods have read the new ones: a run that was cut off is taken up.
    pending.parent.mkdir(parents=True, exist_ok=True)
    pending.touch()
    if old:
        run("kubeadm", "certs", "renew", "all")
    restart(HEALTH)
    pending.unlink()
    turn.give_back()
    return old


def record(paths: Paths, end: datetime) -> None:
    """For Prometheus, which alerts if they are not renewed."""
    lines = {"causeway_certificates_end_time_seconds": f"{end.timestamp():.0f}"}
    figures.tell(paths.metrics / "causeway_certificates.prom", lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="causeway-certificates", description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path("/"), help="where the system is, if not at /")
    parser.add_argument(
        "--restart", choices=sorted(HEALTH), help="only start this pod again, and wait until it is well"
    )
    wanted = parser.parse_args(arguments)
    paths = Paths(wanted.root)
    try:
        if wanted.restart:
            restart([wanted.restart])
            print(f"{wanted.restart} was started again")
            return 0
        renewed = renew(paths, read(paths))
    except (Failed, OSError) as problem:
        print(f"causeway-certificates: {problem}", file=sys.stderr)
        return 1
    print(f"new: {', '.join(renewed)}" if renewed else "none is near its end")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
