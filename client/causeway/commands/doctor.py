"""``doctor``: checks the path from this machine to a run step by step, and prints a fix for each failure."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from rich.console import Console
from rich.text import Text

from causeway.cluster.connection import Cluster
from causeway.cluster.labels import QUEUE
from causeway.cluster.store import ACCOUNT, Store
from causeway.errors import CausewayError, UnreachableError

_SOON = timedelta(hours=1)
_SKEW = 30.0
"""In seconds. AWS rejects tokens that are issued in its future, and requests that are more than 5 minutes
off."""
_UTC = timezone.utc


@dataclass(frozen=True)
class Finding:
    """The result of a step."""

    step: str
    state: str
    """``ok``, ``warning``, ``failed``, or ``skipped`` because an earlier step failed."""
    said: str
    cure: str = ""


class _FailedError(Exception):
    """A step failed. ``args``: the problem and its fix."""


class _WarningError(_FailedError):
    """A step works, but soon will not, or not for everyone."""


def doctor(group: str | None, *, as_json: bool) -> int:
    """Run all checks. Returns the exit code: 0 if a run can be submitted, 3 if the cluster cannot be reached,
    else 1."""
    out = Console(highlight=False, soft_wrap=True)
    findings = []
    for finding in examine(group):
        findings.append(finding)
        if not as_json:
            _show(out, finding)
    if as_json:
        print(json.dumps([asdict(each) for each in findings]))
    failed = [each.step for each in findings if each.state == "failed"]
    if not failed:
        return 0
    return 3 if failed[0] in _WAY else 1


_MARKS = {
    "ok": ("ok", "green"),
    "warning": ("warn", "yellow"),
    "failed": ("FAIL", "red"),
    "skipped": ("-", "dim"),
}


def _show(out: Console, finding: Finding) -> None:
    mark, style = _MARKS[finding.state]
    out.print(Text.assemble((f"{mark:<5}", style), f"{finding.step:<12}", finding.said))
    if finding.cure:
        out.print(Text(f"{'':17}{finding.cure}", style="yellow"))


def examine(group: str | None) -> Iterator[Finding]:
    """Yield the findings of all steps in order. Steps that depend on one that failed are skipped."""
    cluster = Cluster()
    steps: list[tuple[str, Callable[[], str]]] = [
        ("kubeconfig", lambda: _kubeconfig(cluster)),
        ("network", lambda: _network(cluster)),
        ("api", lambda: _api(cluster)),
        ("clock", lambda: _clock(cluster)),
        ("cluster", lambda: _offer(cluster)),
        ("rights", lambda: _rights(cluster, group)),
        ("queue", lambda: _queue(cluster, group)),
        ("store", lambda: _store(cluster, group)),
    ]
    failed = ""
    for name, look in steps:
        finding = Finding(name, "skipped", f"after {failed}") if failed else _look(name, look)
        if finding.state == "failed" and name in (*_WAY, "cluster"):
            failed = name
        yield finding


_WAY = ("kubeconfig", "network", "api")


def _look(name: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(name, "ok", look())
    except _WarningError as problem:
        return Finding(name, "warning", *problem.args)
    except _FailedError as problem:
        return Finding(name, "failed", *problem.args)
    except CausewayError as problem:
        return Finding(name, "failed", str(problem))


def _kubeconfig(cluster: Cluster) -> str:
    host = cluster.host
    if cluster.certificate is None:
        return f"{host}, with a token"
    from cryptography import x509

    try:
        ends = x509.load_pem_x509_certificate(cluster.certificate).not_valid_after_utc
    except (OSError, ValueError) as error:
        raise _FailedError(f"its certificate cannot be parsed: {error}", _ASK) from None
    left = ends - datetime.now(_UTC)
    if left < timedelta():
        raise _FailedError(f"your certificate ended at {ends:%Y-%m-%d %H:%M} UTC", _ASK)
    if left < _SOON:
        raise _WarningError(f"your certificate ends at {ends:%Y-%m-%d %H:%M} UTC", _ASK)
    return f"{host}, valid until {ends:%Y-%m-%d %H:%M} UTC"


_ASK = "ask your engineers for a new kubeconfig (invoke kubeconfig)"


def _network(cluster: Cluster) -> str:
    where = urlsplit(cluster.host)
    name, port = str(where.hostname), where.port or 443
    try:
        address = str(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        cure = "start the VPN; if it is up, this machine does not use its DNS: check your resolver's settings"
        raise _FailedError(f"{name} cannot be resolved: {error}", cure) from None
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError as error:
        cure = "start the VPN, or its route to this address is missing"
        raise _FailedError(f"{address}:{port} cannot be reached: {error}", cure) from None
    return f"{name} is {address}, and answers"


def _api(cluster: Cluster) -> str:
    try:
        return f"you are {cluster.person}"
    except UnreachableError as error:
        raise _FailedError(str(error), "the address answers, but not as the cluster's API") from None
    except CausewayError as error:
        raise _FailedError(str(error), _ASK) from None


def _clock(cluster: Cluster) -> str:
    date = cluster.date()
    if not date:
        return "the API's answer has no date"
    off = (datetime.now(_UTC) - parsedate_to_datetime(date)).total_seconds()
    if abs(off) > _SKEW:
        raise _FailedError(f"your clock is {off:+.0f} s off the cluster's", "set it by NTP")
    return "your clock matches the cluster's"


def _offer(cluster: Cluster) -> str:
    offer = cluster.offer
    if offer.tools is None:
        raise _FailedError(
            "it does not accept runs", "its engineers have to set `research.tools` in the spec"
        )
    if offer.note:
        raise _WarningError(f"{offer.cluster}; {offer.note}", "pip install --upgrade causeway-client")
    return offer.cluster


def _rights(cluster: Cluster, group: str | None) -> str:
    namespace = cluster.namespace(group)
    wanted = {
        "submit runs": {"verb": "create", "group": "jobset.x-k8s.io", "resource": "jobsets"},
        "see their workers": {"verb": "list", "resource": "pods"},
        "stop runs": {"verb": "patch", "group": "kueue.x-k8s.io", "resource": "workloads"},
        "open the store": {
            "verb": "create",
            "resource": "serviceaccounts",
            "subresource": "token",
            "name": ACCOUNT,
        },
    }
    missing = [what for what, attributes in wanted.items() if not _may(cluster, namespace, attributes)]
    if missing:
        raise _FailedError(
            f"you may not {', '.join(missing)} in {namespace}",
            "are you in the group? engineers add its members to the spec and run `invoke cluster.up`",
        )
    return f"you may use {namespace}"


def _may(cluster: Cluster, namespace: str, attributes: dict[str, str]) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"namespace": namespace, **attributes}},
    }
    found = cluster.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(found["status"]["allowed"])


def _queue(cluster: Cluster, group: str | None) -> str:
    namespace = cluster.namespace(group)
    found = cluster.find(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/localqueues/{QUEUE}")
    if found is None:
        cure = "runs start immediately, or never; if the cluster has quotas, ask its engineers"
        raise _WarningError(f"{namespace} has no queue", cure)
    conditions = found.get("status", {}).get("conditions", ())
    active = next((each for each in conditions if each["type"] == "Active"), None)
    if active is not None and active["status"] != "True":
        raise _FailedError(f"the queue is not active: {active.get('message', '')}", "ask your engineers")
    return f"{namespace} has a queue, where {found.get('status', {}).get('pendingWorkloads', 0)} wait"


def _store(cluster: Cluster, group: str | None) -> str:
    store = Store(cluster, cluster.namespace(group))
    try:
        store.keep_code("0" * 64)
    except UnreachableError as error:
        raise _FailedError(str(error), "does this machine reach AWS (sts and s3 of the region)?") from None
    return f"{store.bucket}, opened without a key"
