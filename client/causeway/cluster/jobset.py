"""A run as one object: a JobSet (jobset.x-k8s.io/v1alpha2), with a Job for each role.

What Kueue, the scheduler and the cluster's admission policies decide (queue, GPUs of the priority class,
topology, ids) is not written here: the policies write it, for everybody in the same way.

How a worker may end (exit codes of ``causeway.runtime``):

====  ==================================  =========================================
code  meaning                             the run
====  ==================================  =========================================
0     done                                ends when its chief or workers all have
75    stopped because it was asked to     starts again; does not count
78    an import failed, wrong digest,     fails at once
      out of memory (``runtime.oom_kills``)
124   it stalled                          starts again, ``restarts`` times
else  the program failed                  starts again, ``restarts`` times
====  ==================================  =========================================

A pod that was preempted, evicted, or whose node was lost has the condition DisruptionTarget: it starts again
and does not count, whatever its code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from causeway.cluster.fit import EFA, Fit
from causeway.cluster.jobs import pod
from causeway.cluster.labels import (
    ADAPTERS,
    API,
    CODE,
    CONTINUES,
    EXACTLY,
    GPUS,
    HUGE_PAGES,
    JOB,
    OURS,
    PARAMETERS,
    PERSON,
    QUEUE,
    RUN,
    SECONDS,
    SWEEP,
    TRIAL,
)
from causeway.cluster.offer import Offer, mounts_of, volume_of
from causeway.cluster.store import ACCOUNT, code_key, packages_folder, run_key
from causeway.cluster.tracking import programs_environment, record_of, sidecars_environment
from causeway.code.source import NO_SOURCE, Source
from causeway.job import Gpus, Job, written
from causeway.packages import CONTENTS, settings_of
from causeway.runtime import NEVER_WORKS, STOPPED, first_of
from causeway.tracking.record import Record
from causeway.workers import (
    PORT,
    ends_when_idle,
    ends_when_stalled,
    ends_with,
    policy_of,
    variables,
)

_HOME = "/causeway"
_CODE, _RESULTS, _CHECKPOINTS, _LOGS, _OUTPUT = (
    f"{_HOME}/{name}" for name in ("code", "results", "checkpoints", "logs", "output")
)
_METRICS, _USAGE = f"{_OUTPUT}/metrics.jsonl", f"{_OUTPUT}/usage.jsonl"
_ATTEMPT = {
    "name": "CAUSEWAY_ATTEMPT",
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']"}},
}
_REGION = {
    "name": "CAUSEWAY_REGION",
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['topology.kubernetes.io/region']"}},
}
"""Kubernetes copies the node's label to its pods (admission plugin PodTopologyLabels)."""
_PACKAGES = f"{_HOME}/python"
TOKEN = "/var/run/secrets/causeway"  # noqa: S105  a folder
_API_TOKEN = "/var/run/secrets/tracking"  # noqa: S105  a folder
_TOPOLOGY = {
    "host": "kubernetes.io/hostname",
    "rack": "topology.kubernetes.io/zone",
    "zone": "topology.kubernetes.io/zone",
    "site": f"{OURS}/site",
}


@dataclass(frozen=True)
class Repeated:
    """How a run was started, beyond its job and code."""

    run: str
    image: str
    """The image reference, with its digest if known."""
    packages: Sequence[str]
    """Packages installed over those of the image: ``numpy==2.4.6``."""


@dataclass(frozen=True)
class TrialOf:
    """Identifies a trial of a search."""

    sweep: str
    number: int
    record: str
    """The name by which its programs find its MLflow run, which exists before the run starts."""


@dataclass(frozen=True)
class Submission:
    """A run to submit."""

    run: str
    namespace: str
    person: str
    job: Job
    fits: Sequence[Fit]
    """One for each role."""
    offer: Offer
    digest: str
    """Digest of the code's archive; empty without code."""
    continues: Sequence[str] = ()
    """Runs from whose checkpoints it resumes while it has none of its own, the nearest first."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Values given by ``--set``."""
    repeats: Repeated | None = None
    """The exact start that it repeats; None for a run of its own."""
    source: Source = NO_SOURCE
    trial: TrialOf | None = None

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its pods; the JobSet has more."""
        return {RUN: self.run, **({SWEEP: self.trial.sweep} if self.trial else {})}

    @property
    def hosts(self) -> dict[str, list[str]]:
        """Role → ``host:port`` of its workers: the names that JobSet gives pods, below the subdomain."""
        return {
            each.workers.role: [
                f"{self.run}-{each.workers.role}-0-{rank}.{self.run}:{PORT}"
                for rank in range(each.workers.count)
            ]
            for each in self.fits
        }


def jobset(made: Submission) -> dict[str, Any]:
    """Return the JobSet of a run."""
    run, job, digest = made.run, made.job, made.digest
    workers = [each.workers for each in made.fits]
    return {
        "apiVersion": API,
        "kind": "JobSet",
        "metadata": {
            "name": run,
            "namespace": made.namespace,
            "labels": {
                "kueue.x-k8s.io/queue-name": QUEUE,
                **made.labels,
                **({TRIAL: str(made.trial.number)} if made.trial else {}),
                SECONDS: str(job.time),
            },
            "annotations": {
                JOB: json.dumps(written(job), ensure_ascii=False),
                PERSON: made.person,
                **({CODE: digest} if digest else {}),
                **({CONTINUES: ",".join(made.continues)} if made.continues else {}),
                **({PARAMETERS: json.dumps(dict(made.given))} if made.given else {}),
                **({EXACTLY: made.repeats.run} if made.repeats else {}),
            },
        },
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": run, "publishNotReadyAddresses": True},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": [ends_with(workers)]},
            "failurePolicy": _failure_policy(job.restarts),
            "replicatedJobs": [
                {
                    "name": each.workers.role,
                    "replicas": 1,
                    "template": _job(made, each),
                }
                for each in made.fits
            ],
        },
    }


def _failure_policy(restarts: int) -> dict[str, Any]:
    """Return the failure policy. The first matching rule applies. JobSet can see an exit code only in the
    failed Job's message."""
    return {
        "maxRestarts": restarts,
        # A rank of the last start must not meet one of the next.
        "restartStrategy": "BlockingRecreate",
        "rules": [
            {
                "name": "neverworks",
                "action": "FailJobSet",
                "onJobFailureReasons": ["PodFailurePolicy"],
                "onJobFailureMessagePatterns": [f".*exit code {NEVER_WORKS}.*"],
            },
            {
                "name": "disrupted",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": ["PodFailurePolicy"],
            },
        ],
    }


def _pod_failure_policy(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return rules that fail a Job with the reason PodFailurePolicy; any other failure has
    BackoffLimitExceeded.

    A sidecar's exit code is ignored: a slow one is killed.
    """
    containers = [*pod["initContainers"], *pod["containers"]]
    names = [each["name"] for each in containers if each.get("restartPolicy") != "Always"]
    codes = {"operator": "In", "values": [STOPPED, NEVER_WORKS]}
    return {
        "rules": [
            {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            *({"action": "FailJob", "onExitCodes": {"containerName": name, **codes}} for name in names),
        ]
    }


def _job(made: Submission, fit: Fit) -> dict[str, Any]:
    count, spec = fit.workers.count, _pod(made, fit)
    annotations = {}
    near = made.job.where.near
    # Adapters reach each other within a zone only.
    if fit.fabric is not None and near in (None, "site"):
        near = "zone"
    if near:
        annotations["kueue.x-k8s.io/podset-required-topology"] = _TOPOLOGY[near]
    return {
        "spec": {
            "completionMode": "Indexed",
            "parallelism": count,
            "completions": count,
            "backoffLimit": 0,
            "podFailurePolicy": _pod_failure_policy(spec),
            "template": {
                "metadata": {
                    "labels": made.labels,
                    **({"annotations": annotations} if annotations else {}),
                },
                "spec": spec,
            },
        },
    }


def _pod(made: Submission, fit: Fit) -> dict[str, Any]:
    job = made.job
    selector = _selector(fit)
    affinity = _affinity(job, fit.workers.gpus)
    volumes = [
        *_claims(made),
        *([_api_token()] if _record(made) else []),
        {"name": "causeway", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(job.shm or fit.memory // 2)}},
        token_volume(made.offer),
    ]
    return pod(
        [_main(made, fit)], volumes, account=ACCOUNT, grace=job.grace,
        **({"priorityClassName": job.priority} if job.priority else {}),
        **({"nodeSelector": selector} if selector else {}),
        **({"affinity": affinity} if affinity else {}),
        initContainers=[*_before(made, fit), _keep(made, fit)],
    )  # fmt: skip


def token_volume(offer: Offer) -> dict[str, Any]:
    """Return the volume with a token that AWS accepts, to be mounted at ``TOKEN``."""
    token = {"audience": offer.store.audience, "expirationSeconds": 3600, "path": "token"}
    return {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}}


def access(offer: Offer, namespace: str) -> dict[str, str]:
    """Return the environment for access to the store with that token."""
    return {
        "AWS_REGION": offer.store.region,
        "AWS_DEFAULT_REGION": offer.store.region,  # the only region variable that botocore reads
        "AWS_ROLE_ARN": offer.store.roles.get(namespace, ""),
        "AWS_WEB_IDENTITY_TOKEN_FILE": f"{TOKEN}/token",
    }


def _record(made: Submission) -> Record | None:
    """What MLflow knows about the run; None without MLflow."""
    tracking = made.offer.tracking
    if tracking is None or not made.job.tracking.record:
        return None
    return record_of(
        tracking,
        made.job,
        made.fits,
        run=made.run,
        namespace=made.namespace,
        person=made.person,
        digest=made.digest,
        image=_image(made),
        given=made.given,
        source=made.source,
    )


def _alias(made: Submission) -> str:
    """The alias of its MLflow run; empty if the JobSet's uid is used."""
    return made.trial.record if made.trial else ""


def _api_token() -> dict[str, Any]:
    """A token of the service account for the API server, which MLflow asks what its bearer may do."""
    token = {"expirationSeconds": 3600, "path": "token"}
    return {"name": "tracking", "projected": {"sources": [{"serviceAccountToken": token}]}}


def _claims(made: Submission) -> list[dict[str, Any]]:
    found = [mount for mount, _ in mounts_of(made.job, made.namespace, made.offer)]
    sources = [{"claimName": mount.claim, "readOnly": mount.read_only} for mount in found]
    return [{"name": each["claimName"], "persistentVolumeClaim": each} for each in sources]


def _selector(fit: Fit) -> dict[str, str]:
    gpus = fit.workers.gpus
    asked = {"gpu-model": gpus.model, "gpu-class": gpus.class_, "interconnect": gpus.interconnect}
    if fit.fabric is not None and not any(
        each.gpus and each.gpus.interconnect == EFA for each in fit.machines
    ):
        # Without it, the cluster is older and its nodes have no separate label.
        asked |= {"interconnect": None, "efa": "true"}
    return {f"{OURS}/{label}": value for label, value in asked.items() if value is not None and gpus.count}


def _affinity(job: Job, gpus: Gpus) -> dict[str, Any]:
    """Return the affinity for what a node selector cannot express: one of several values, none of them, at
    least."""
    expressions: list[dict[str, Any]] = []
    if job.where.sites:
        expressions.append({"key": f"{OURS}/site", "operator": "In", "values": list(job.where.sites)})
    if not job.where.spot:
        paid = {"key": f"{OURS}/capacity-type", "operator": "NotIn", "values": ["spot", "mixed"]}
        expressions.append(paid)
    if gpus.count and gpus.memory is not None:
        less = str(-(-gpus.memory >> 20) - 1)
        expressions.append({"key": f"{OURS}/gpu-memory-mib", "operator": "Gt", "values": [less]})
    if not expressions:
        return {}
    terms = [{"matchExpressions": expressions}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _before(made: Submission, fit: Fit) -> Iterator[dict[str, Any]]:
    """The init containers: in the job's image one that inspects its Python and one that installs packages;
    between them the one that fetches."""
    if not made.job.python:
        yield _fetch(made, fit)
        return
    common = {
        "image": _image(made),
        "volumeMounts": [{"name": "causeway", "mountPath": _HOME}],
        "resources": _resources(fit, gpus=False),
    }
    contents = CONTENTS.read_text(encoding="utf-8")
    yield {"name": "image", **common, "command": ["python3", "-c", _literal(contents), f"{_HOME}/image.json"]}
    yield _fetch(made, fit)
    own = {"HOME": _HOME, "UV_CACHE_DIR": f"{_HOME}/uv-cache", **made.job.env}
    yield {
        "name": "packages",
        **common,
        "command": ["python3", f"{_HOME}/install.py", f"{_HOME}/install.json"],
        "env": [*environment(own), *_secrets(made.job)],
        "terminationMessagePolicy": "File",
    }


def _fetch(made: Submission, fit: Fit) -> dict[str, Any]:
    """The init container that brings the runtime, and the code if there is any. The run fails if the code is
    not what was submitted."""
    digest = made.digest
    packages = {}
    if made.job.python:
        # One worker installs; the others use what it has installed.
        installs = first_of(made.hosts) == made.hosts[fit.workers.role][0]
        packages = {
            "CAUSEWAY_PACKAGES": made.job.python,
            "CAUSEWAY_PACKAGES_FOLDER": packages_folder(made.namespace),
            "CAUSEWAY_PACKAGES_SETTINGS": json.dumps(settings_of(made.job.env)),
            **({"CAUSEWAY_PACKAGES_EXACTLY": json.dumps(made.repeats.packages)} if made.repeats else {}),
            "CAUSEWAY_KEEP_DAYS": str(made.offer.code_keep_days),
            "CAUSEWAY_INSTALLS": str(installs).lower(),
        }
    archive = f"s3://{made.offer.store.bucket}/{code_key(made.namespace, digest)}" if digest else ""
    return {
        "name": "code",
        "command": ["python", "-m", "causeway.fetch", _HOME],
        **_ours(made, fit, {"CAUSEWAY_ARCHIVE": archive, "CAUSEWAY_DIGEST": digest, **packages}),
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
    }


def _keep(made: Submission, fit: Fit) -> dict[str, Any]:
    """The sidecar that copies output and results to the store, beside the job's container and for a while
    after it."""
    own = _ours(made, fit, {})
    if record := _record(made):
        own["env"] += sidecars_environment(record, f"{_API_TOKEN}/token", _alias(made))
        own["volumeMounts"].append({"name": "tracking", "mountPath": _API_TOKEN, "readOnly": True})
    else:
        own["env"].append(_REGION)
    return {
        "name": "keep",
        # A sidecar: started before the job's container, stopped after it.
        "restartPolicy": "Always",
        "command": ["python", "-m", "causeway.keep", _HOME],
        **own,
        "env": [*own["env"], _ATTEMPT],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
    }


def _ours(made: Submission, fit: Fit, more: Mapping[str, str]) -> dict[str, Any]:
    """What our own containers share: image, access to the store, the run's folder."""
    store = made.offer.store
    before = [f"s3://{store.bucket}/{run_key(made.namespace, run)}" for run in made.continues]
    own = {
        **access(made.offer, made.namespace),
        "CAUSEWAY_KEPT": f"s3://{store.bucket}/{run_key(made.namespace, made.run)}",
        "CAUSEWAY_ROLE": fit.workers.role,
        **_places_of_checkpoints(made),
        "CAUSEWAY_POLICY": policy_of(made.job, [each.workers for each in made.fits]).text(),
        **({"CAUSEWAY_CONTINUES": json.dumps(before)} if before else {}),
        **more,
    }
    volume = volume_of(made.job, made.namespace, made.offer)
    mounts = (
        []
        if volume is None
        else [{"name": volume[0].claim, "mountPath": str(PurePosixPath(volume[1]).parent)}]
    )
    return {
        "image": made.offer.tools,
        "env": environment(own),
        "volumeMounts": [
            {"name": "causeway", "mountPath": _HOME},
            {"name": "token", "mountPath": TOKEN, "readOnly": True},
            *mounts,
        ],
    }


def _places_of_checkpoints(made: Submission) -> dict[str, str]:
    """The environment variables that ``causeway.fetch`` and ``causeway.keep`` read about checkpoints."""
    path = made.job.checkpoints.path
    volume = volume_of(made.job, made.namespace, made.offer)
    return {
        **({"CAUSEWAY_CHECKPOINTS_PATH": path} if path and not path.startswith("/") else {}),
        **({"CAUSEWAY_CHECKPOINTS_VOLUME": volume[1]} if volume else {}),
    }


def _main(made: Submission, fit: Fit) -> dict[str, Any]:
    job, workers, offer = made.job, fit.workers, made.offer
    path = job.checkpoints.path or ""
    own_path = path if path.startswith("/") else ""
    folders = {
        "RESULTS": _RESULTS, "CHECKPOINTS": own_path or _CHECKPOINTS, "LOGS": _LOGS, "CODE": _CODE,
        "METRICS": _METRICS, "USAGE": _USAGE,
    }  # fmt: skip
    mounts = mounts_of(made.job, made.namespace, offer)
    own = {
        # No image knows the namespace's ids: without this, the home folder would be `/`.
        "HOME": next((path for mount, path in mounts if mount.path is None), _HOME),
        **variables(made.run, job, workers, made.hosts, folders),
        "CAUSEWAY_OUTPUT": _OUTPUT,
        **ends_when_idle(job, workers, [each.workers for each in made.fits]),
        **ends_when_stalled(job, workers, [each.workers for each in made.fits]),
        **({"CAUSEWAY_PYTHON": _PACKAGES} if job.python else {}),
        # Pods have one interface; NCCL and gloo would try others first.
        "NCCL_SOCKET_IFNAME": "eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
        # Makes libfabric fail instead of taking another way; the runtime says where NCCL would fall back.
        **({"FI_PROVIDER": "efa", "CAUSEWAY_EFA": str(fit.fabric.adapters)} if fit.fabric else {}),
        **job.env,
    }
    record = _record(made)
    return {
        "name": "main",
        "image": _image(made),
        "command": ["python3", f"{_HOME}/runtime.py", _literal(workers.launch.script)],
        "workingDir": _HOME,
        "env": [
            *environment(own),
            _ATTEMPT,
            *(programs_environment(record, job, _alias(made)) if record else []),
            *_secrets(job),
        ],
        "resources": _resources(fit, gpus=True),
        "ports": [{"containerPort": port} for port in job.ports],
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            *(
                {"name": mount.claim, "mountPath": path, "readOnly": mount.read_only}
                for mount, path in mounts
            ),
            {"name": "causeway", "mountPath": _HOME},
            *([{"name": "causeway", "mountPath": own_path, "subPath": "checkpoints"}] if own_path else []),
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108  the pod's own
        ],
    }


def _image(made: Submission) -> str:
    return made.repeats.image if made.repeats else reference(made.job, made.offer)


def reference(job: Job, offer: Offer) -> str:
    """Return the reference of a job's image."""
    name = job.image or offer.default_image
    return offer.images[name].reference if name in offer.images else name


def _resources(fit: Fit, *, gpus: bool) -> dict[str, Any]:
    amounts = {"cpu": f"{round(fit.cpus * 1000)}m", "memory": f"{fit.memory >> 20}Mi"}
    limits = {"memory": amounts["memory"]}
    if gpus and fit.workers.gpus.count:
        limits[GPUS] = str(fit.workers.gpus.count)
    if gpus and fit.fabric is not None:
        limits |= {ADAPTERS: str(fit.fabric.adapters), HUGE_PAGES: f"{fit.fabric.huge_pages_mib}Mi"}
    return {"requests": amounts, "limits": limits}


def _secrets(job: Job) -> list[dict[str, Any]]:
    return [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": variable}}}
        for secret, variable in job.secrets.items()
    ]


def environment(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": _literal(value)} for name, value in values.items()]


def _literal(text: str) -> str:
    """Escape text that a container should get unchanged: the kubelet replaces ``$$`` by ``$``, and
    ``$(NAME)`` by a variable's value (Kubernetes, API reference, Container, ``command`` and ``env.value``).
    """
    return text.replace("$", "$$")
