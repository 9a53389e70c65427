"""A run as one object: a JobSet (jobset.x-k8s.io/v1alpha2), with a Job for each role.

What Kueue, the scheduler and the cluster's admission policies decide (queue, GPUs of the priority class,
topology, ids) is not written here: the policies write it, for everybody in the same way.

How a worker may end (exit codes of ``causeway.runtime``):

====  ==================================  =========================================
code  meaning                             the run
====  ==================================  =========================================
0     done                                ends when its chief or workers all have
75    stopped because it was asked to     starts again; does not count
78    an import failed, wrong digest      fails at once
137   killed: no memory left              fails at once
else  the program failed                  starts again, ``restarts`` times
====  ==================================  =========================================

A pod that was preempted, evicted, or whose node was lost has the condition DisruptionTarget: it starts again
and does not count, whatever its code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from causeway.cluster.fit import Fit
from causeway.cluster.offer import Offer, mounts_of
from causeway.cluster.store import ACCOUNT, code_key
from causeway.job import Gpus, Job, written
from causeway.runtime import NEVER_WORKS, STOPPED
from causeway.workers import PORT, ends_with, variables

API = "jobset.x-k8s.io/v1alpha2"
OURS = "causeway.dev"
RUN = f"{OURS}/run"
"""Label: the run's name, on the JobSet and on its pods."""
JOB, CODE, PERSON = f"{OURS}/job", f"{OURS}/code", f"{OURS}/person"
"""Annotations: the job as a file would have it, the archive's name, who submitted it."""
QUEUE = "default"
_KILLED = 137

_HOME = "/causeway"
_CODE, _RESULTS, _CHECKPOINTS, _LOGS = (
    f"{_HOME}/{name}" for name in ("code", "results", "checkpoints", "logs")
)
_TOKEN = "/var/run/secrets/causeway"  # noqa: S105  a folder
_TOPOLOGY = {
    "host": "kubernetes.io/hostname",
    "rack": "topology.kubernetes.io/zone",
    "zone": "topology.kubernetes.io/zone",
    "site": f"{OURS}/site",
}


@dataclass(frozen=True)
class Submission:
    """A run that is to be."""

    run: str
    namespace: str
    person: str
    job: Job
    fits: Sequence[Fit]
    """Of its roles."""
    offer: Offer
    digest: str
    """The code's archive; empty for none."""

    @property
    def hosts(self) -> dict[str, list[str]]:
        """Role → ``host:port`` of its workers. JobSet names pods so, below the subdomain."""
        return {
            each.workers.role: [
                f"{self.run}-{each.workers.role}-0-{rank}.{self.run}:{PORT}"
                for rank in range(each.workers.count)
            ]
            for each in self.fits
        }


def jobset(made: Submission) -> dict[str, Any]:
    """The object of a run."""
    run, job, digest = made.run, made.job, made.digest
    workers = [each.workers for each in made.fits]
    seconds = {"kueue.x-k8s.io/max-exec-time-seconds": str(job.time)}
    return {
        "apiVersion": API,
        "kind": "JobSet",
        "metadata": {
            "name": run,
            "namespace": made.namespace,
            "labels": {"kueue.x-k8s.io/queue-name": QUEUE, RUN: run, **seconds},
            "annotations": {
                JOB: json.dumps(written(job), ensure_ascii=False),
                PERSON: made.person,
                **({CODE: digest} if digest else {}),
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
    """The first rule that matches counts. JobSet knows an exit code by the failed Job's message alone."""
    return {
        "maxRestarts": restarts,
        # No old rank meets a new one.
        "restartStrategy": "BlockingRecreate",
        "rules": [
            {
                "name": "neverworks",
                "action": "FailJobSet",
                "onJobFailureReasons": ["PodFailurePolicy"],
                "onJobFailureMessagePatterns": [f".*exit code ({NEVER_WORKS}|{_KILLED}).*"],
            },
            {
                "name": "disrupted",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": ["PodFailurePolicy"],
            },
        ],
    }


def _pod_failure_policy() -> dict[str, Any]:
    """Rules that end a Job with the reason PodFailurePolicy; all else ends it as BackoffLimitExceeded."""
    codes = {"operator": "In", "values": [STOPPED, NEVER_WORKS, _KILLED]}
    return {
        "rules": [
            {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": codes},
        ]
    }


def _job(made: Submission, fit: Fit) -> dict[str, Any]:
    count = fit.workers.count
    annotations = {}
    if near := made.job.where.near:
        annotations["kueue.x-k8s.io/podset-required-topology"] = _TOPOLOGY[near]
    return {
        "spec": {
            "completionMode": "Indexed",
            "parallelism": count,
            "completions": count,
            "backoffLimit": 0,
            "podFailurePolicy": _pod_failure_policy(),
            "template": {
                "metadata": {
                    "labels": {RUN: made.run},
                    **({"annotations": annotations} if annotations else {}),
                },
                "spec": _pod(made, fit),
            },
        },
    }


def _pod(made: Submission, fit: Fit) -> dict[str, Any]:
    job = made.job
    selector = _selector(fit.workers.gpus)
    affinity = _affinity(job, fit.workers.gpus)
    return {
        "restartPolicy": "Never",
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": job.grace,
        **({"priorityClassName": job.priority} if job.priority else {}),
        **({"nodeSelector": selector} if selector else {}),
        **({"affinity": affinity} if affinity else {}),
        "initContainers": [_fetch(made)],
        "containers": [_main(made, fit)],
        "volumes": [
            *_claims(made),
            {"name": "causeway", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(job.shm or fit.memory // 2)}},
            {
                "name": "token",
                "projected": {
                    "sources": [
                        {
                            "serviceAccountToken": {
                                "audience": made.offer.store.audience,
                                "expirationSeconds": 3600,
                                "path": "token",
                            }
                        }
                    ]
                },
            },
        ],
    }


def _claims(made: Submission) -> list[dict[str, Any]]:
    found = [mount for mount, _ in mounts_of(made.job, made.namespace, made.offer)]
    sources = [{"claimName": mount.claim, "readOnly": mount.read_only} for mount in found]
    return [{"name": each["claimName"], "persistentVolumeClaim": each} for each in sources]


def _selector(gpus: Gpus) -> dict[str, str]:
    asked = {"gpu-model": gpus.model, "gpu-class": gpus.class_, "interconnect": gpus.interconnect}
    return {f"{OURS}/{label}": value for label, value in asked.items() if value is not None and gpus.count}


def _affinity(job: Job, gpus: Gpus) -> dict[str, Any]:
    """What a selector can't say: one of several, none of several, at least."""
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


def _fetch(made: Submission) -> dict[str, Any]:
    """Brings the runtime, and the code if there is some: what was submitted, or the run fails."""
    store, digest = made.offer.store, made.digest
    archive = f"s3://{store.bucket}/{code_key(made.namespace, digest)}" if digest else ""
    return {
        "name": "code",
        "image": made.offer.tools,
        "command": ["python", "-m", "causeway.fetch", _HOME],
        "env": _env(
            {
                "AWS_REGION": store.region,
                "AWS_DEFAULT_REGION": store.region,  # botocore reads no other
                "AWS_ROLE_ARN": store.roles.get(made.namespace, ""),
                "AWS_WEB_IDENTITY_TOKEN_FILE": f"{_TOKEN}/token",
                "CAUSEWAY_ARCHIVE": archive,
                "CAUSEWAY_DIGEST": digest,
            }
        ),
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "volumeMounts": [
            {"name": "causeway", "mountPath": _HOME},
            {"name": "token", "mountPath": _TOKEN, "readOnly": True},
        ],
    }


def _main(made: Submission, fit: Fit) -> dict[str, Any]:
    job, workers, offer = made.job, fit.workers, made.offer
    name = job.image or offer.default_image
    image = offer.images[name].reference if name in offer.images else name
    folders = {"RESULTS": _RESULTS, "CHECKPOINTS": _CHECKPOINTS, "LOGS": _LOGS, "CODE": _CODE}
    mounts = mounts_of(made.job, made.namespace, offer)
    own = {
        # The namespace's ids are in no image: without this, a home would be `/`.
        "HOME": next((path for mount, path in mounts if mount.path is None), _HOME),
        **variables(made.run, workers, made.hosts, folders),
        # Pods have one interface; NCCL and gloo would else try others first.
        "NCCL_SOCKET_IFNAME": "eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
        **job.env,
    }
    attempt = {"fieldPath": "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']"}
    secrets = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": variable}}}
        for secret, variable in job.secrets.items()
    ]
    amounts = {"cpu": f"{round(fit.cpus * 1000)}m", "memory": f"{fit.memory >> 20}Mi"}
    limits = {"memory": amounts["memory"]}
    if workers.gpus.count:
        limits["nvidia.com/gpu"] = str(workers.gpus.count)
    return {
        "name": "main",
        "image": image,
        "command": ["python3", f"{_HOME}/runtime.py", _literal(workers.launch.script)],
        "workingDir": _HOME,
        "env": [
            *_env(own),
            {"name": "CAUSEWAY_ATTEMPT", "valueFrom": {"fieldRef": attempt}},
            *secrets,
        ],
        "resources": {"requests": amounts, "limits": limits},
        "ports": [{"containerPort": port} for port in job.ports],
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            *(
                {"name": mount.claim, "mountPath": path, "readOnly": mount.read_only}
                for mount, path in mounts
            ),
            {"name": "causeway", "mountPath": _HOME},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108  the pod's own
        ],
    }


def _env(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": _literal(value)} for name, value in values.items()]


def _literal(text: str) -> str:
    """Text that a container gets as it is: the kubelet takes ``$$`` for ``$``, and puts a variable's value in
    place of ``$(NAME)`` (Kubernetes, API reference, Container, ``command`` and ``env.value``)."""
    return text.replace("$", "$$")
