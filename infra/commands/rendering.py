"""Renders a spec to files, compares them, and draws the topology."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.commands.environment import Environment, Project, keep_lock, load_project
from infra.commands.terminal import coloured, note, say, say_json, tell_count

if TYPE_CHECKING:
    from pathlib import Path

    from infra.drive.workspace import Written


def write(project: Project) -> Written:
    """Update the build folder and the lock file; returns the added, changed and removed files."""
    from infra.drive import workspace

    build = project.environment.build
    with workspace.locked(build):
        # The lock file first, as rendered files depend on its decisions.
        grown = keep_lock(project)
        written = workspace.write(build, project.files)
    if grown:
        note(f"{project.environment.lock_file} holds what must not move: commit it.")
    for path in written.kept_aside:
        note(f"{build / path} had been edited by hand; that text is in {path}.orig")
    return written


def render(environment: Environment, *, json: bool) -> int:
    """Render into the build folder."""
    project = load_project(environment)
    tell_count(project.loaded.problems, environment.name)
    written = write(project)
    counts = {
        "added": len(written.added),
        "changed": len(written.changed),
        "removed": len(written.removed),
        "unchanged": len(written.unchanged),
    }
    if json:
        say_json({"folder": str(environment.build), **counts})
    else:
        told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        say(f"{environment.build}: {told}")
    return 0


def diff(environment: Environment, *, json: bool) -> int:
    """The changes in rendered files since the last apply."""
    from infra.drive import diff as diffs
    from infra.drive import last_applied
    from infra.drive.build_folders import Folders
    from infra.errors import UsageError

    applied = last_applied.recall(Folders(environment.build.absolute()))
    if applied is None or applied.about.get("begun"):
        raise UsageError(f"{environment.name} was never applied from here: there is nothing to compare with")
    found = diffs.diff(applied.files, load_project(environment, changeable=True).files)
    if json:
        say_json(diffs.to_json(found))
    elif found:
        import sys

        say(diffs.text(found, colour=coloured(sys.stdout)))
    else:
        say(
            f"Nothing has changed in what is rendered since {applied.about.get('applied', 'the last apply')}."
        )
    if only := applied.about.get("only"):
        note(f"That apply was narrowed to {', '.join(only)}: other sites may have changes.")
    return 0


def topology(environment: Environment, *, show: bool) -> int:
    """Draw the cluster, with a saved plan's changes marked."""
    from infra.drive import dot
    from infra.render import topology as picture

    project = load_project(environment, changeable=True)
    changes = _marks(project)
    source = picture.dot_source(project.cluster, changes)
    # Without Graphviz here, another computer can draw it.
    _replace(environment.build / "topology.dot", source)
    for name, text in picture.render(project.cluster, changes, dot.svg(source)).items():
        _replace(environment.build / name, text)
    page = environment.build / "topology.html"
    say(f"{page} and {page.with_suffix('.svg').name}")
    if show:
        import webbrowser

        if not webbrowser.open(page.absolute().as_uri()):
            note("No browser found to open it in.")
    return 0


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def _marks(project: Project) -> dict[str, str]:
    """Element of the diagram → its change in the saved plan; empty without a plan of this very spec."""
    import shutil
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from infra.commands.marks import marks
    from infra.commands.session import modules
    from infra.drive import lifecycle, plan, saved_plan
    from infra.drive.build_folders import Folders
    from infra.drive.engine import find_engine
    from infra.drive.terraform import Terraform, TerraformError

    folders = Folders(project.environment.build.absolute())
    found = saved_plan.load(folders)
    if found is None or not found.has_changes:
        return {}
    if found.inputs.files != lifecycle.fingerprint(project.files):
        again = f"invoke plan {project.environment.options}"
        note(f"Not marked: the plan of {found.made} is of another spec; `{again}` makes a new one.")
        return {}
    terraform = Terraform(find_engine(), folders.root, data=folders.data)
    try:
        with TemporaryDirectory() as folder:
            # A concurrent apply may use up the plan at any time.
            copy = Path(shutil.copy(saved_plan.plan_file(folders), folder))
            shown = terraform.show(copy)
    except (FileNotFoundError, TerraformError):
        if saved_plan.load(folders) == found:
            raise
        note(f"Not marked: the plan of {found.made} was applied, or replaced, while this ran.")
        return {}
    note(f"Marked: what the plan of {found.made} would change.")
    return marks(plan.parse(shown, modules(project.cluster)).changes, project.cluster)
