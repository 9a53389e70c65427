"""Applies rendered objects, part by part, and prunes our objects that are no longer rendered.

Applied objects are listed in the cluster, in a ConfigMap per part: pruning by labels alone would delete
objects to which controllers copy labels. An object is removed from the list only once it is deleted.
kubectl's own ``--prune --applyset`` was alpha when this was written.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.drive import secret_files
from infra.drive.kubernetes import rollout
from infra.drive.kubernetes.api import Api, ApiError
from infra.drive.kubernetes.kubectl import Kubectl
from infra.drive.kubernetes.refs import Ref, parsed, ref
from infra.errors import DriveError

NAMESPACE: Final = "causeway-system"
LIST: Final = "causeway-applied-"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
OURS: Final = "causeway"

PRECIOUS: Final = frozenset(
    {"Namespace", "PersistentVolume", "PersistentVolumeClaim", "CustomResourceDefinition"}
)
"""Kinds that hold users' data, or whose deletion deletes other objects: deleted only if named."""


@dataclass(frozen=True, slots=True)
class Part:
    """A rendered part: its objects in order."""

    name: str
    objects: tuple[Mapping[str, Any], ...]

    @property
    def refs(self) -> tuple[Ref, ...]:
        return tuple(map(ref, self.objects))


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of applying a part."""

    count: int
    pruned: tuple[Ref, ...]
    kept: tuple[Ref, ...]
    """Objects that are no longer rendered but kept, as they hold users' data."""


def parts(folder: Path) -> list[Part]:
    """The parts in a folder's ``kustomization.yaml``, in order; empty without the file."""
    return [Part(name, tuple(_objects(folder / name))) for name in _resources(folder)]


def without(part: Part, logins: Collection[str]) -> Part:
    """The part without these users in its bindings."""
    if not logins:
        return part
    return Part(part.name, tuple(_without(each, logins) for each in part.objects))


def _without(thing: Mapping[str, Any], logins: Collection[str]) -> Mapping[str, Any]:
    if thing["kind"] not in {"RoleBinding", "ClusterRoleBinding"}:
        return thing
    subjects = thing.get("subjects") or []
    return {**thing, "subjects": [each for each in subjects if not _is_one(each, logins)]}


def _is_one(subject: Mapping[str, Any], logins: Collection[str]) -> bool:
    return subject.get("kind") == "User" and subject.get("name") in logins


def apply(kubectl: Kubectl, api: Api, part: Part, *, destroy: Collection[str] = ()) -> Applied:
    """Apply a part, then prune it. ``destroy`` names the protected objects that may be deleted
    (``Ref.word``)."""
    before = listed(api, part.name)
    now = part.refs
    _list(api, part.name, {*before, *now})  # first: an object that is on no list would never be pruned
    if part.objects:
        kubectl.apply(written(kubectl, f"{part.name}.json", part.objects))
        # The namespaces of the first part include the one of the list.
        _list(api, part.name, {*before, *now})
    gone, kept = _prune(kubectl, before, now, destroy)
    _list(api, part.name, {*now, *kept})
    return Applied(len(part.objects), gone, kept)


def drop(kubectl: Kubectl, api: Api, rendered: Iterable[str], *, destroy: Collection[str] = ()) -> Applied:
    """Prune parts that are no longer rendered."""
    gone: list[Ref] = []
    kept: list[Ref] = []
    for name in sorted(_lists(api) - set(rendered)):
        pruned, stays = _prune(kubectl, listed(api, name), (), destroy)
        gone += pruned
        kept += stays
        if stays:
            _list(api, name, set(stays))
        else:
            api.delete(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{LIST}{name}")
    return Applied(0, tuple(gone), tuple(kept))


def changes(kubectl: Kubectl, part: Part) -> tuple[str, ...] | None:
    """The objects of a part that applying would change; None if that cannot be known before other parts are
    applied."""
    if not part.objects:
        return ()
    try:
        return kubectl.diff(written(kubectl, f"{part.name}.json", part.objects))
    except DriveError as problem:
        if "not found" in str(problem) or "no matches for kind" in str(problem):
            return None
        raise


def surplus(kubectl: Kubectl, api: Api, part: Part) -> tuple[Ref, ...]:
    """Our objects in the cluster that are no longer rendered."""
    return tuple(_ours(kubectl, _unwanted(listed(api, part.name), part.refs)))


def listed(api: Api, part: str) -> frozenset[Ref]:
    """The objects that were applied for a part."""
    found = api.find(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{LIST}{part}")
    if found is None:
        return frozenset()
    try:
        rows = json.loads(found["data"]["objects"])
        return frozenset(Ref(*map(str, row)) for row in rows)
    except (KeyError, ValueError, TypeError):
        raise DriveError(
            f"the ConfigMap {NAMESPACE}/{LIST}{part} was modified; delete it: nothing of that part is "
            "pruned until it is applied again"
        ) from None


def wait(
    kubectl: Kubectl,
    api: Api,
    part: Part,
    *,
    placed: bool,
    seconds: int = 300,
    on_line: Callable[[str], None] = lambda _line: None,
) -> list[str]:
    """Wait until a part is ready: its CRDs are served and its workloads are available. Returns what is
    missing because nodes are not ready (``rollout.wait``). Raises ``DriveError`` for anything else.

    ``placed``: whether there is a node for ordinary pods.
    """
    crds = [each.name for each in part.refs if each.kind == "CustomResourceDefinition"]
    if crds:
        kubectl.follow(
            "wait", "--for=condition=Established", f"--timeout={seconds}s", *(f"crd/{name}" for name in crds)
        )
    return rollout.wait(api, rollout.workloads(part.refs, placed=placed), seconds=seconds, on_line=on_line)


# -- parts -------------------------------------------------------------------------------------------------


def _resources(folder: Path) -> list[str]:
    import yaml

    file = folder / "kustomization.yaml"
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return [str(name) for name in (found or {}).get("resources") or []]


def _objects(folder: Path) -> Iterable[Mapping[str, Any]]:
    for name in _resources(folder):
        path = folder / name
        if path.is_dir():
            yield from _objects(path)
        else:
            yield from parsed(path.read_text(encoding="utf-8"))


def written(kubectl: Kubectl, name: str, objects: Sequence[Mapping[str, Any]]) -> Path:
    """A stream of documents, as JSON. For a List, kubectl would request the whole OpenAPI v2 document."""
    file = kubectl.access.folder / name
    secret_files.write_file(file, "---\n".join(json.dumps(each) + "\n" for each in objects))
    return file


def _unwanted(before: Iterable[Ref], now: Iterable[Ref]) -> list[Ref]:
    wanted = {each.same for each in now}
    return sorted(each for each in before if each.same not in wanted)


def _ours(kubectl: Kubectl, refs: Sequence[Ref]) -> list[Ref]:
    """Those that exist and still have our label."""
    if not refs:
        return []
    found = []
    for each in refs:
        # One by one: a kind that the API no longer knows must not affect the others.
        try:
            rows = kubectl.objects(written(kubectl, "look.json", [each.stub()]))
        except DriveError as problem:
            if "no matches for kind" in str(problem) or "doesn't have a resource type" in str(problem):
                continue
            raise
        if any((row["metadata"].get("labels") or {}).get(MANAGED_BY) == OURS for row in rows):
            found.append(each)
    return found


def _prune(
    kubectl: Kubectl, before: Iterable[Ref], now: Iterable[Ref], destroy: Collection[str]
) -> tuple[tuple[Ref, ...], tuple[Ref, ...]]:
    surplus = _ours(kubectl, _unwanted(before, now))
    kept = tuple(each for each in surplus if each.kind in PRECIOUS and each.word not in destroy)
    gone = tuple(each for each in surplus if each not in kept)
    if gone:
        kubectl.delete(written(kubectl, "prune.json", [each.stub() for each in gone]))
    return gone, kept


def _lists(api: Api) -> set[str]:
    found = api.list(f"/api/v1/namespaces/{NAMESPACE}/configmaps", labelSelector=f"{MANAGED_BY}={OURS}")
    names = (str(each["metadata"]["name"]) for each in found)
    return {name.removeprefix(LIST) for name in names if name.startswith(LIST)}


def _list(api: Api, part: str, refs: Iterable[Ref]) -> None:
    rows = [[each.api_version, each.kind, each.namespace, each.name] for each in sorted(refs)]
    name = f"{LIST}{part}"
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {MANAGED_BY: OURS}},
        "data": {"objects": json.dumps(rows)},
    }
    folder = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    try:
        if api.find(f"{folder}/{name}") is None:
            api.create(folder, body)
        else:
            api.patch(f"{folder}/{name}", {"data": body["data"]})
    except ApiError as problem:
        # The namespace does not exist before the first part creates it.
        if problem.code != 404:
            raise


def put_secret(
    api: Api, namespace: str, name: str, values: Mapping[str, str], *, kind: str = "Opaque"
) -> str:
    """Create or update the Secret with exactly these values; with no values, delete it. Returns the action
    as a word."""
    folder = f"/api/v1/namespaces/{namespace}/secrets"
    data = {key: base64.b64encode(text.encode()).decode() for key, text in values.items()}
    found = api.find(f"{folder}/{name}")
    if found is None and not data:
        return "none"
    if not data:
        api.delete(f"{folder}/{name}")
        return "deleted"
    if found is None:
        labels = {MANAGED_BY: OURS}
        metadata = {"name": name, "namespace": namespace, "labels": labels}
        api.create(
            folder, {"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": metadata, "data": data}
        )
        return "created"
    old = found.get("data") or {}
    if old == data:
        return "unchanged"
    gone: dict[str, None] = dict.fromkeys(key for key in old if key not in data)
    api.patch(f"{folder}/{name}", {"data": {**data, **gone}})
    return "updated"
