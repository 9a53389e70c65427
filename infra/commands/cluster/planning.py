"""`invoke cluster.up --plan`: what a run would do. Changes nothing, including the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from infra.commands.cluster.desired_state import permitted, rendered
from infra.commands.cluster_access import Reach
from infra.commands.environment import Project
from infra.commands.terminal import note, say, say_json
from infra.errors import CausewayError
from infra.nearest import listed

if TYPE_CHECKING:
    from infra.drive.secrets import Store


def tell(project: Project, store: Store, *, json: bool) -> int:
    """Print what each step would do."""
    from infra.drive.kubernetes import access, secrets

    authority = secrets.authority(store)
    rows: list[dict[str, Any]]
    if authority is None:
        rows = [_row("keys", f"made, and kept in {store}"), *begun(project)]
    else:
        where = access.endpoint(project.cluster)
        with access.opened(project.environment.build, where, authority) as found:
            there = Reach(project, found)
            if there.api.ready():
                rows = [_row("keys", "kept as they are"), *_compared(there, store)]
            else:
                note(f"The API does not answer at {where.address}: this run starts from nothing.")
                rows = [_row("keys", "kept as they are"), *begun(project)]
    show(rows, json=json)
    return 0


def show(rows: Sequence[Mapping[str, Any]], *, json: bool) -> None:
    """Print the steps, as text or JSON."""
    if json:
        say_json(rows)
        return
    for number, row in enumerate(rows, 1):
        say(f"[{number}] {row['step']}: {row['would']}")
        for line in row["objects"][:20]:
            say(f"      {line}")
        if len(row["objects"]) > 20:
            say(f"      and {len(row['objects']) - 20} more")


def _row(step: str, would: str, objects: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"step": step, "would": would, "objects": list(objects)}


def begun(project: Project) -> list[dict[str, Any]]:
    """The steps if no API answers: all of them."""
    from infra.commands.cluster.desired_state import nodes_of
    from infra.drive.kubernetes import apply, helm

    folder = rendered(project)
    nodes = nodes_of(project)
    masters = [each.name for each in nodes if each.is_master]
    others = [each.name for each in nodes if each.name not in masters]
    return [
        _row(masters[0], "converges and initializes the cluster"),
        *(_row(name, "converges and joins") for name in masters[1:]),
        *(_row(f"apply {each.name}", f"{len(each.objects)} objects") for each in apply.parts(folder)),
        *_published(project),
        *([_row("machines", f"{listed(others)} converge and join")] if others else []),
        *(_row(f"chart {each.name}", f"installs {each.version}") for each in helm.read(folder / "charts")),
        *(
            _row(f"apply {each.name}", f"{len(each.objects)} objects")
            for each in apply.parts(folder / "after")
        ),
    ]


def _published(project: Project) -> list[dict[str, Any]]:
    identity = project.cluster.web_identity
    if identity is None:
        return []
    return [_row(f"publish the keys of tokens in s3://{identity.bucket}", "writes what differs")]


def _compared(there: Reach, store: Store) -> list[dict[str, Any]]:
    """Compare a running cluster with the rendered objects."""
    from infra.commands.cluster.desired_state import nodes_of
    from infra.drive.kubernetes import apply, helm, joining

    folder = rendered(there.project)
    nodes = joining.node_names(there.api)
    rows = []
    for each in nodes_of(there.project):
        would = "converges" if each.name in nodes else "converges and joins"
        rows.append(_row(each.name, would))
    for part in (*apply.parts(folder), *apply.parts(folder / "after")):
        part = permitted(store, part)
        changed = apply.changes(there.kubectl, part)
        gone = [f"- {each}" for each in apply.surplus(there.kubectl, there.api, part)]
        if changed is None:
            rows.append(
                _row(
                    f"apply {part.name}",
                    f"{len(part.objects)} objects, some of kinds or in namespaces to come",
                )
            )
            continue
        words = "nothing" if not changed and not gone else f"changes {len(changed)}, deletes {len(gone)}"
        rows.append(_row(f"apply {part.name}", words, (*(f"~ {each}" for each in changed), *gone)))
    rows += _published(there.project)
    present = {(each.name, each.namespace): each for each in there.helm.releases()}
    for release in helm.read(folder / "charts"):
        had = present.get((release.name, release.namespace))
        try:
            same = there.helm.current(release, had)
        except CausewayError:
            same = False
        words = "nothing" if same else f"{'upgrades to' if had else 'installs'} {release.version}"
        rows.append(_row(f"chart {release.name}", words))
    return rows
