"""`invoke upgrade`: what this version of the program would change, against what was applied last."""

from __future__ import annotations

import json as jsons
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from infra import __version__
from infra.commands import planning, recorded
from infra.commands.environment import Environment, Project
from infra.commands.terminal import note, say, say_json
from infra.errors import UsageError, dotted

if TYPE_CHECKING:
    from infra.drive.last_applied import Applied
    from infra.drive.lifecycle import Job, Planned
    from infra.files import Files

_GATEWAYS: Final = ("strongswan/", "openvpn/")
_MACHINES: Final = ("chef/", "kubernetes/kubeadm/")
_NODES: Final = "chef/nodes/"
"""An object for each machine, which only that machine gets."""
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Step:
    """Something to do, in its order."""

    step: str
    commands: tuple[str, ...]
    """Empty where it is none of ours."""
    why: tuple[str, ...]


def upgrade(environment: Environment, *, json: bool, detailed_exitcode: bool) -> int:
    """Show it; with ``detailed_exitcode`` 2 when there is something to do. Nothing is applied."""
    from infra.drive import last_applied, lifecycle

    readied = planning.ready(environment)
    before = None if readied is None else last_applied.recall(readied[1].folders)
    if readied is None or before is None or before.about.get("begun"):
        raise UsageError(
            f"{environment.name} was never applied from here: there is nothing to upgrade; "
            f"see what an apply would do: invoke plan {environment.options}"
        )
    project, job = readied
    planned = planning.make_plan(project, job)
    steps = [*_steps(project, job, before, planned)]
    gone = {
        action: [one.address for one in planned.plan.changes if one.action == action]
        for action in ("replace", "delete")
    }
    if json:
        say_json(
            {
                "environment": environment.name,
                "from": before.about.get("causeway"),
                "to": __version__,
                "applied": before.about.get("applied"),
                "spec_changes": _spec_changes(project),
                "findings": [
                    {"code": each.code, "path": each.path, "level": each.level.value, "message": each.message}
                    for each in project.loaded.problems
                    if not each.waived
                ],
                "counts": dict(planned.saved.counts),
                "replaced": gone["replace"],
                "destroyed": gone["delete"],
                "steps": [asdict(each) for each in steps],
            }
        )
    else:
        _tell(project, before, steps, gone)
        if planned.saved.has_changes:
            note(f"Its plan is saved: `{lifecycle.apply_command(job, planned.saved)}` does exactly that.")
    return 2 if steps and detailed_exitcode else 0


def _tell(project: Project, before: Applied, steps: list[Step], gone: Mapping[str, list[str]]) -> None:
    was = before.about.get("causeway") or "a version before 1.0.0"
    say(f"{project.environment.name}: from {was} to {__version__}; applied {before.about.get('applied', '')}")
    if changes := _spec_changes(project):
        say("The spec has changed since then, too; what follows has these changes in it:")
        for line in changes:
            say(f"  {line}")
    for action, what in (("delete", "DESTROYED"), ("replace", "REPLACED")):
        for address in gone[action]:
            say(f"  {what}: {address}")
    if not steps:
        say("Nothing to do.")
    for number, each in enumerate(steps, 1):
        say(f"[{number}] {each.step}: {'; '.join(each.commands)}".rstrip(": "))
        for line in each.why[:_SHOWN]:
            say(f"      {line}")
        if len(each.why) > _SHOWN:
            say(f"      and {len(each.why) - _SHOWN} more")


def _spec_changes(project: Project) -> list[str]:
    """What the spec says otherwise than at the last apply."""
    return [f"{dotted(each.path)}: {each.what}" for each in project.changes]


def _steps(project: Project, job: Job, before: Applied, planned: Planned) -> Iterator[Step]:
    from infra.drive import lifecycle
    from infra.drive.diff import diff
    from infra.drive.images import inputs

    cluster, options = project.cluster, project.environment.options
    changed = [f"{each.kind}: {each.path}" for each in diff(before.files, project.files).files]
    newer = before.about.get("causeway") != __version__

    def files(*folders: str) -> tuple[str, ...]:
        return tuple(line for line in changed if _path(line).startswith(folders))

    if allowed := _new_actions(before, project):
        yield Step("policies", (f"invoke iam {options}",), allowed)
    if planned.saved.has_changes:
        counts = ", ".join(f"{count} to {what}" for what, count in planned.saved.counts.items() if count)
        yield Step("apply", (lifecycle.apply_command(job, planned.saved),), (counts,))
    if newer and (images := _containers(project)):
        yield Step("container-images", (), tuple(f"build {each} again, and push it" for each in images))
    if found := files(*_GATEWAYS):
        yield Step("gateways", (f"invoke vpn.push {options}",), found)
    if moved := _release(before.files, project.files):
        yield Step("kubernetes", (f"invoke cluster.upgrade {options}",), moved)
    if found := (*_addons(before.files, project.files), *files("kubernetes/")):
        yield Step("cluster", (f"invoke cluster.up {options}",), found)
    shipped = _changed_folders(before)
    common = (
        *(each for each in shipped if each == "cookbooks"),
        *(each for each in files(*_MACHINES) if not _path(each).startswith((_NODES, "chef/images/"))),
    )
    own = files(_NODES)
    paths = {_path(each) for each in own}
    nodes = [(node.name, site.name) for site in cluster.sites for node in site.nodes]
    nodes += [(each.name, each.site) for each in cluster.instances]
    if sites := dict.fromkeys(site for name, site in nodes if common or f"{_NODES}{name}.json" in paths):
        commands = tuple(f"invoke converge {options} --site {each}" for each in sites)
        yield Step("machines", commands, (*common, *own))
    baked = (each for each in files("packer/", "chef/") if inputs.concerns(_path(each)))
    if cluster.images and (found := (*shipped, *baked)):
        commands = tuple(f"invoke {each} {options}" for each in ("bake", "apply"))
        yield Step("images", (f"{commands[0]} --all", commands[1]), found)
    if newer and cluster.research is not None:
        yield Step("clients", (f"pip install --upgrade causeway-client=={__version__}",), ())


def _path(line: str) -> str:
    """``changed: chef/roles/base.json`` → the path in it."""
    return line.partition(": ")[2]


def _new_actions(before: Applied, project: Project) -> tuple[str, ...]:
    """What roles are not allowed yet; that it is not known, where nobody recorded it."""
    now, then = recorded.actions(project), before.about.get("actions")
    if not isinstance(then, dict):
        return ("what the last apply's policies allow is not recorded",) if now else ()
    return tuple(
        f"{role}: {action}"
        for role, those in now.items()
        for action in those
        if action not in then.get(role, ())
    )


def _containers(project: Project) -> list[str]:
    """The images of ours that the spec names."""
    cluster = project.cluster
    named = [
        cluster.autoscaler.image if cluster.autoscaler is not None else None,
        cluster.research.tools if cluster.research is not None else None,
    ]
    return [each for each in named if each]


def _release(before: Files, after: Files) -> tuple[str, ...]:
    then, now = (_kubernetes(files).get("release") for files in (before, after))
    return (f"Kubernetes {then} to {now}",) if then and then != now else ()


def _addons(before: Files, after: Files) -> tuple[str, ...]:
    """Add-ons whose version moves."""
    then, now = (
        {each["name"]: (each["chart"] or {}).get("version") for each in _kubernetes(files).get("addons", ())}
        for files in (before, after)
    )
    return tuple(
        f"{name} {version} to {now[name]}"
        for name, version in then.items()
        if name in now and now[name] != version
    )


def _kubernetes(files: Files) -> Mapping[str, Any]:
    found = jsons.loads(files.get("cluster.json", "{}")).get("kubernetes")
    return found if isinstance(found, dict) else {}


def _changed_folders(before: Applied) -> tuple[str, ...]:
    """Those of the package that are not as they were; none where nobody recorded them."""
    then = before.about.get("shipped")
    if not isinstance(then, dict):
        return recorded.FOLDERS
    return tuple(name for name, digest in recorded.shipped().items() if then.get(name) != digest)
