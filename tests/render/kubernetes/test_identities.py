"""Alan at Ada's files, as a real API server lets him: every way that people's rights leave open.

NFS from a pod itself is a matter of nodes' rules and network policies.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from golden_clusters import golden
from kube.api import Api, RefusedError, collection, refused
from kube.plane import Plane
from kube.queues import kinds
from kube_tools import templated
from render.kubernetes.policy_world import GPUS, job, pod, world
from render.kubernetes.test_queue_policies import job_set
from waiting import until

from infra.model import Cluster
from infra.render.kubernetes import guards, namespaces
from infra.render.kubernetes.tenants import GIDS, UID

ALAN = "user-alan"
TEAM = "team-researchers"


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return golden("research")


@pytest.fixture(scope="module")
def here(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with world(cluster, tmp_path_factory.mktemp("identities")) as here:
        kinds(here.admin, [*templated("jobset"), *templated("kueue")])
        here.admin.apply_all({**guards.identities(cluster), **guards.guards(cluster)})
        until(lambda: _in_force(here))
        yield here


def _in_force(here: Plane) -> bool:
    """Whether the API server goes by all rules: it hears of them one by one."""
    alan = here.somebody("alan")
    owned = home()
    owned["metadata"]["ownerReferences"] = [OWNER]
    said = [
        refusal(alan, each) for each in (home(runAsUser=0), volume(nfs={"server": "x", "path": "/"}), owned)
    ]
    return all(said) and refusal(alan, home()) == ""


OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "0", "controller": True}


@pytest.fixture
def alan(here: Plane) -> Api:
    return here.somebody("alan", "causeway:researchers")


BOUND = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["NET_RAW"]}}


def home(namespace: str = ALAN, claim: str = "home", **context: Any) -> dict[str, Any]:
    """A pod with a path of the machines, which says of itself what it would be."""
    found = pod("x", namespace, volumes=[{"name": "files", "persistentVolumeClaim": {"claimName": claim}}])
    if context:
        found["spec"]["securityContext"] = context
    return found


def inner(kind: str = "containers", **context: Any) -> dict[str, Any]:
    """The same, said by a container."""
    found = home()
    container = {"name": "inner", "image": "none", "securityContext": context}
    found["spec"][kind] = [container, *found["spec"].get(kind, [])]
    return found


def volume(**source: Any) -> dict[str, Any]:
    return pod("x", ALAN, volumes=[{"name": "files", **source}])


def cron_job(of: dict[str, Any]) -> dict[str, Any]:
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": job(of)["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": of["metadata"], "spec": spec}


def deployment(of: dict[str, Any], kind: str = "Deployment") -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": of["spec"]}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": of["metadata"], "spec": spec}


def refusal(who: Api, each: dict[str, Any]) -> str:
    """The code and why, or nothing."""
    return str(refused(who.create, each, dry=True) or "")


def suspended(each: dict[str, Any]) -> dict[str, Any]:
    return {**each, "spec": {**each["spec"], "suspend": True}}


@contextmanager
def created(here: Plane, each: dict[str, Any]) -> Iterator[None]:
    here.admin.create(each)
    try:
        yield
    finally:
        # A Job goes at once, as nobody is there to orphan its pods.
        options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        here.admin.call("DELETE", f"{collection(each)}/{each['metadata']['name']}", options)


def changed(who: Api, path: str, change: dict[str, Any]) -> RefusedError | None:
    """How a change of an object that is there is refused; None where it is taken."""
    return refused(who.call, "PATCH", f"{path}?dryRun=All", change, "application/merge-patch+json")


def refused_change(who: Api, each: dict[str, Any], spec: dict[str, Any]) -> str:
    """The policy that refuses it; empty where it is taken."""
    error = changed(who, f"{collection(each)}/{each['metadata']['name']}", {"spec": spec})
    return error.policy or str(error) if error else ""


def adas(cluster: Cluster) -> int:
    return next(user.uid for user in cluster.access.users if user.login == "ada")


def tries(ada: int) -> dict[str, dict[str, Any]]:
    nfs = {"nfs": {"server": "titan-01.rack-a.research.internal", "path": "/srv/home/ada"}}
    by_driver = {
        "csi": {"driver": "nfs.csi.k8s.io", "volumeAttributes": {"server": "x", "share": "/srv/home"}}
    }
    return {
        "an NFS volume": volume(**nfs),
        "an NFS volume of a job": job(volume(**nfs)),
        "an NFS volume of a JobSet": job_set(volume(**nfs)),
        "an NFS volume of a CronJob": cron_job(volume(**nfs)),
        "an NFS volume of a deployment": deployment(volume(**nfs)),
        "a volume of NFS's driver in line": volume(**by_driver),
        "a disk by its name": volume(awsElasticBlockStore={"volumeID": "vol-1"}),
        "a host path": volume(hostPath={"path": "/home/ada"}),
        "a file system by Ceph": volume(cephfs={"monitors": ["10.0.0.1"]}),
        "as Ada": home(runAsUser=ada),
        "as Ada, in a job": job(home(runAsUser=ada)),
        "as Ada, in the second part of a JobSet": job_set(home(), home(runAsUser=ada)),
        "as Ada, in a CronJob": cron_job(home(runAsUser=ada)),
        "as Ada, in a deployment": deployment(home(runAsUser=ada)),
        "as Ada, in a stateful set": deployment(home(runAsUser=ada), "StatefulSet"),
        "as Ada, in one container": inner(runAsUser=ada),
        "as Ada, in an init container": inner("initContainers", runAsUser=ada),
        "as root": home(runAsUser=0),
        "as root, in an init container of a job": job(inner("initContainers", runAsUser=0)),
        "as Ada, in the group's results": home(TEAM, "results", runAsUser=ada),
        "as Ada, in the own results": home(claim="results", runAsUser=ada),
        "in Ada's group, as the first": home(runAsGroup=ada),
        "in Ada's group, as the first of a container": inner(runAsGroup=ada),
        "in Ada's group, besides": home(supplementalGroups=[ada]),
        "in Ada's group, by the volume": home(fsGroup=ada),
        "in groups of the image": home(supplementalGroupsPolicy="Merge"),
        "by sudo": inner(allowPrivilegeEscalation=True),
        "by sudo, in an init container": inner("initContainers", allowPrivilegeEscalation=True),
        "by a capability": inner(allowPrivilegeEscalation=False, capabilities={"add": ["SETUID"]}),
        "in her namespace": home("user-ada"),
    }  # fmt: skip


TRIES = sorted(tries(0))


@pytest.mark.parametrize("name", TRIES)
def test_alan_gets_none_of_adas_files(alan: Api, cluster: Cluster, name: str) -> None:
    assert refusal(alan, tries(adas(cluster))[name]).startswith("403"), name


def test_nor_by_a_container_that_joins_a_pod_of_his(here: Plane, alan: Api, cluster: Cluster) -> None:
    made = home()
    alan.create(made)
    try:
        where = f"/api/v1/namespaces/{ALAN}/pods/x/ephemeralcontainers?dryRun=All"

        def join(**context: Any) -> dict[str, Any]:
            spec = {"ephemeralContainers": [{"name": "y", "image": "none", "securityContext": context}]}
            return dict(alan.call("PATCH", where, {"spec": spec}, "application/strategic-merge-patch+json"))

        for context in ({"runAsUser": adas(cluster)}, {"runAsUser": 0}, {"allowPrivilegeEscalation": True}):
            assert refused(join, **context)
        (joined,) = join()["spec"]["ephemeralContainers"]
        assert joined["securityContext"] == BOUND
    finally:
        here.admin.delete(made)


def test_nor_by_a_change_of_a_template_or_of_the_numbers(alan: Api, here: Plane, cluster: Cluster) -> None:
    made = deployment(home())
    alan.create(made)
    try:
        template = {"template": {"spec": {"securityContext": {"runAsUser": adas(cluster)}}}}
        assert refused_change(alan, made, template)
    finally:
        here.admin.delete(made)
    numbers = {"metadata": {"annotations": {UID: str(adas(cluster))}}}
    error = changed(alan, f"/api/v1/namespaces/{ALAN}", numbers)
    assert error is not None
    assert error.code == 403


def test_a_pod_with_files_need_not_say_whose_it_is(alan: Api, cluster: Cluster) -> None:
    user = next(each for each in cluster.access.users if each.login == "alan")
    groups = [each.gid for each in cluster.access.groups if each.name in user.groups]
    made = alan.create(inner("initContainers"), dry=True)
    assert made["spec"]["securityContext"] == {
        "runAsUser": user.uid,
        "runAsGroup": user.uid,
        "supplementalGroups": [user.uid, *groups],
        "supplementalGroupsPolicy": "Strict",
    }
    for container in (*made["spec"]["containers"], *made["spec"]["initContainers"]):
        assert container["securityContext"] == BOUND
    # What it says of itself stays, within what it may.
    (gid,) = groups
    made = alan.create(home(runAsGroup=gid, fsGroup=gid), dry=True)
    assert made["spec"]["securityContext"]["runAsGroup"] == gid
    for form in (job, cron_job, deployment, job_set):
        assert refusal(alan, form(home())) == ""
        assert refusal(alan, form(home(runAsUser=user.uid))) == ""


def test_a_group_uses_files_as_itself(alan: Api, cluster: Cluster) -> None:
    (group,) = (each for each in cluster.access.groups if each.namespace == TEAM)
    made = alan.create(home(TEAM, "results"), dry=True)
    assert made["spec"]["securityContext"] | {"supplementalGroupsPolicy": ""} == {
        "runAsUser": group.gid,
        "runAsGroup": group.gid,
        "supplementalGroups": [group.gid],
        "supplementalGroupsPolicy": "",
    }
    assert group.gid not in {user.uid for user in cluster.access.users}


def test_without_files_a_container_is_what_its_image_says(alan: Api) -> None:
    made = alan.create(pod("x", ALAN, securityContext={"runAsUser": 0}), dry=True)
    assert made["spec"]["securityContext"] == {"runAsUser": 0}


def test_each_namespace_has_the_numbers_of_its_people(cluster: Cluster) -> None:
    found = namespaces.objects(cluster)
    numbers = {
        each["metadata"]["name"]: each["metadata"]["annotations"]
        for each in (*found["people.yaml"], *found["teams.yaml"])
        if each["kind"] == "Namespace"
    }
    uids = [each[UID] for each in numbers.values()]
    assert len(set(uids)) == len(uids) == len(cluster.access.users) + len(cluster.access.groups)
    assert all(each[GIDS] for each in numbers.values())


# -- Places in queues ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form", [lambda each: each, job, job_set, lambda each: deployment(each, "StatefulSet")]
)
def test_nobody_says_that_a_controller_has_made_it(here: Plane, alan: Api, form: Any) -> None:
    made = form(pod("x", ALAN))
    made["metadata"] = {**made["metadata"], "ownerReferences": [OWNER]}
    assert refusal(alan, made)
    controller = here.somebody("system:serviceaccount:kube-system:job-controller", "system:masters")
    assert refusal(controller, made) == ""
    own = here.somebody(f"system:serviceaccount:{ALAN}:default", "system:masters")
    if form is job:
        # Who is an administrator by whatever way may.
        assert refusal(own, made) == ""
    made["metadata"]["ownerReferences"] = [{**OWNER, "controller": False}]
    assert refusal(alan, made) == ""


def workload() -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "x", "image": "x"}], "restartPolicy": "Never"}}
    sets = [{"name": "main", "count": 1, "template": template}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": ALAN, "labels": {"a": "b"}},
        "spec": {"active": True, "queueName": "gpus", "podSets": sets},
    }


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"priority": 100000}},
        {"spec": {"preemptionGates": [{"name": "x.example/y"}]}},
        {"spec": {"queueName": "another"}},
        {"spec": {"active": False, "priority": 7}},
        {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "x"}}},
        {"metadata": {"annotations": {"kueue.x-k8s.io/priority-boost": "9"}}},
        {"metadata": {"finalizers": ["x.example/y"]}},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_people_take_their_work_out_of_a_queue_and_do_not_move_it(
    here: Plane, alan: Api, change: dict[str, Any]
) -> None:
    here.admin.create(workload())
    where = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{ALAN}/workloads/w"
    try:
        error = changed(alan, where, change)
        assert error is not None
        assert error.policy
        assert changed(alan, where, {"spec": {"active": False}}) is None
        # Kueue itself, and who runs the cluster.
        kueue = here.somebody("system:serviceaccount:kueue-system:kueue-controller-manager", "system:masters")
        assert changed(kueue, where, change) is None
        assert changed(here.somebody("ada"), where, change) is None
    finally:
        here.admin.call("DELETE", where)


KUEUE = "kueue.x-k8s.io/admission"
JOBSETS = "system:serviceaccount:jobset-system:jobset-controller-manager"
POD_OF_HIS = f"system:serviceaccount:{ALAN}:default"


@pytest.fixture(scope="module")
def controllers(here: Plane) -> None:
    """They may change work in the namespace, and no queues."""
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "controllers", "namespace": ALAN},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "causeway:member"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": name} for name in (JOBSETS, POD_OF_HIS)],
    }
    here.admin.apply(binding)
    # The API server hears of it a moment later.
    probe = home()
    until(lambda: not refusal(here.somebody(POD_OF_HIS), probe))


@pytest.mark.parametrize(
    ("made", "change"),
    [
        (pod("g", ALAN, schedulingGates=[{"name": KUEUE}]), {"schedulingGates": None}),
        (
            pod("g", ALAN, schedulingGates=[{"name": KUEUE}, {"name": "kueue.x-k8s.io/topology"}]),
            {"schedulingGates": [{"name": KUEUE}]},
        ),
        (suspended(job(pod("g", ALAN))), {"suspend": False}),
        (suspended(job(pod("g", ALAN))), {"suspend": None}),
        (suspended(job_set(pod("g", ALAN))), {"suspend": False}),
        (suspended(job_set(pod("g", ALAN))), {"suspend": None}),
    ],
    ids=["a pod", "a pod of two gates", "a Job", "a Job by omission", "a JobSet", "a JobSet by omission"],
)
@pytest.mark.usefixtures("controllers")
def test_people_do_not_begin_what_a_queue_holds_back(
    here: Plane, alan: Api, made: dict[str, Any], change: dict[str, Any]
) -> None:
    with created(here, made):
        assert refused_change(alan, made, change)
        assert refused_change(here.somebody(POD_OF_HIS), made, change)
        # The controllers of jobs and of queues, and who runs the cluster.
        for each in (JOBSETS, "ada"):
            assert refused_change(here.somebody(each), made, change) == ""


@pytest.mark.parametrize(
    ("made", "change"),
    [
        (job(pod("g", ALAN)), {"suspend": True}),
        (job_set(pod("g", ALAN)), {"suspend": True}),
        (suspended(job(pod("g", ALAN))), {"suspend": True, "backoffLimit": 3}),
        (
            pod("g", ALAN, schedulingGates=[{"name": KUEUE}, {"name": "x.example/mine"}]),
            {"schedulingGates": [{"name": KUEUE}]},
        ),
        (pod("g", ALAN, schedulingGates=[{"name": KUEUE}]), {"activeDeadlineSeconds": 60}),
    ],
    ids=["suspends a Job", "suspends a JobSet", "changes a Job", "a gate of one's own", "changes a pod"],
)
def test_people_hold_their_work_back_and_change_it(
    here: Plane, alan: Api, made: dict[str, Any], change: dict[str, Any]
) -> None:
    with created(here, made):
        assert refused_change(alan, made, change) == ""


# -- Parts of a GPU -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [lambda each: each, job, job_set], ids=["a pod", "a Job", "a JobSet"])
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_nobody_asks_for_a_part_of_a_gpu(alan: Api, form: Any, kind: str) -> None:
    def asks(amount: object) -> dict[str, Any]:
        found = pod("x", ALAN)
        container = {"name": "c", "image": "none", "resources": {"limits": {GPUS: amount}}}
        found["spec"][kind] = [container]
        return dict(form(found))

    for part in ("500m", "0.5"):
        assert GPUS in refusal(alan, asks(part))
    for whole in ("1", 1):
        assert refusal(alan, asks(whole)) == ""
