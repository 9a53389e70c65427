"""Previews the cluster of an environment on the embedded AWS, which has no machines.

If KUBEBUILDER_ASSETS names a real API server, the rendered objects are submitted to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from infra.catalogue.labels import GPU_CLASS
from infra.commands.cluster_access import Reach
from infra.commands.environment import Project
from infra.commands.terminal import columns, note, say, say_json
from infra.errors import DriveError
from infra.nearest import listed

if TYPE_CHECKING:
    from infra.drive.kubernetes.preview import Offered
    from infra.model import Cluster


@contextmanager
def server(project: Project) -> Iterator[Reach | None]:
    """An empty API server while the block runs; None, with a note why, if there is none."""
    from infra.drive.kubernetes import preview
    from infra.render.kubernetes.kubeadm import ADMISSION

    programs = preview.programs()
    if programs is None:
        note(f"{preview.ASSETS} is not set: no API server has seen this. With one, objects are sent to it.")
        yield None
        return
    note(f"Starting {programs.apiserver} for this preview …")
    services = str(project.cluster.network.services)
    with preview.serving(programs, services=services, admission=ADMISSION) as access:
        yield Reach(project, access)


def offered(there: Reach) -> dict[str, Offered]:
    """Part → the server's response, in order. Empty, with a note, without kubectl."""
    from infra.commands.cluster.desired_state import rendered
    from infra.drive.kubernetes import apply, helm, preview

    folder = rendered(there.project)
    try:
        kubectl = there.kubectl
    except DriveError as problem:
        note(f"{problem}; without it, no object is sent to the API server")
        return {}
    answers = {part.name: preview.offer(kubectl, part) for part in apply.parts(folder)}
    for namespace in {release.namespace for release in helm.read(folder / "charts")}:
        if there.api.find(f"/api/v1/namespaces/{namespace}") is None:  # Helm would create it
            there.api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    return answers | {part.name: preview.offer(kubectl, part) for part in apply.parts(folder / "after")}


def plan(project: Project, *, json: bool) -> int:
    """`cluster.up --plan`: the steps, and the API server's responses; 1 if it refuses an object."""
    from infra.commands.cluster.planning import begun, show

    rows = begun(project)
    with server(project) as there:
        answers = offered(there) if there is not None else {}
        version = there.api.get("/version")["gitVersion"] if answers and there is not None else ""
    for row in rows:
        if answer := answers.get(row["step"].removeprefix("apply ")):
            row["would"] = _answered(answer, version)
            row["objects"] = [f"! {refused}" for refused in answer.refused]
    show(rows, json=json)
    refused = sum(len(answer.refused) for answer in answers.values())
    if refused:
        note(f"error: kube-apiserver {version} refuses {refused} of the rendered objects")
    return 1 if refused else 0


def _answered(answer: Offered, version: str) -> str:
    said = [f"{answer.accepted} objects, accepted by kube-apiserver {version}"]
    if answer.to_come:
        said.append(f"charts bring {listed(answer.to_come)}")
    if answer.refused:
        said.append(f"{len(answer.refused)} refused")
    return "; ".join(said)


def status(project: Project, *, json: bool) -> int:
    """`cluster.status`: the planned cluster."""
    cluster = project.cluster
    found = would_be(cluster)
    if json:
        say_json(found)
        return 0
    note("The embedded AWS has no machines. This is the cluster that the spec describes:")
    say(f"Kubernetes {found['version']}; masters: {listed(found['masters'])}")
    say()
    table = [(row["place"], row["nodes"], row["gpus"], row["class"]) for row in found["nodes"]]
    say(columns(("site or pool", "nodes", "GPUs a node", "class"), table))
    say()
    say(f"add-ons: {listed(found['addons'])}")
    note(f"`invoke cluster.up {project.environment.options} --plan` says what each step would do.")
    return 0


def would_be(cluster: Cluster) -> dict[str, Any]:
    """``{"preview": true, "version", "masters": [name], "nodes": [{"place", "nodes", "gpus", "class"}],
    "addons": [name]}``; ``nodes`` is a count, or the smallest and largest of a pool's."""
    plane = cluster.control_plane
    kinds = Counter(
        (site.name, node.allocatable["nvidia.com/gpu"] if node.gpus else "0", node.labels.get(GPU_CLASS, ""))
        for site in cluster.sites
        for node in site.nodes
        if node.allocatable
    )
    rows = [
        {"place": site, "nodes": str(count), "gpus": gpus, "class": gpu_class}
        for (site, gpus, gpu_class), count in kinds.items()
    ]
    rows += [
        {
            "place": f"{pool.name}, {group.site}",
            "nodes": f"{group.min} to {group.max}",
            "gpus": group.allocatable.get("nvidia.com/gpu", "0"),
            "class": group.labels.get(GPU_CLASS, ""),
        }
        for pool in cluster.pools
        for group in pool.groups
    ]
    return {
        "preview": True,
        "version": cluster.kubernetes.version,
        "masters": [master.hostname for master in plane.masters] if plane else [],
        "nodes": rows,
        "addons": [addon.name for addon in cluster.kubernetes.addons],
    }
