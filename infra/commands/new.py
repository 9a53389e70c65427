"""A lab's own repository: its initial files, and the files that a newer Causeway updates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from infra.errors import UsageError
from infra.shipped_files import ROOT

_BROUGHT: Final = ("docs/ci", "docs/iam", "docs/iam.md")
"""Files that belong to a version of Causeway and are overwritten."""


def new(folder: str, name: str) -> int:
    """Write missing files into a folder, and update those of this version. The lab's own files are kept.

    ``name``: of the lab and its environment; by default the folder's.
    """
    from infra.commands.reference import update
    from infra.commands.terminal import say

    root = Path(folder)
    name = name or _present(root) or root.resolve().name
    if root.exists() and not root.is_dir():
        raise UsageError(f"{folder} is not a folder")
    own = {path: text for path, text in _own(name).items() if not (root / path).exists()}
    if f"environments/{name}.yaml" in own:
        _require_name(name)
    wrote = [path for path, text in {**own, **_brought()}.items() if update(root / path, text)]
    for path in sorted(wrote):
        say(f"wrote {path}")
    if own:
        say(f"Next: cd {folder} && make install && .venv/bin/invoke plan")
    elif not wrote:
        say("Everything exists already.")
    return 0


def _require_name(name: str) -> None:
    from pydantic import TypeAdapter, ValidationError

    from infra.schema.types import Name

    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError as fault:
        raise UsageError(f"{fault.errors()[0]['msg']}; give another with --name") from None


def _present(folder: Path) -> str:
    """An existing environment of the repository: another one is created only if ``name`` is given."""
    files = sorted((folder / "environments").glob("*.yaml"))
    return next((path.stem for path in files if not path.stem.endswith(".lock")), "")


def _own(name: str) -> Mapping[str, str]:
    """Path → initial text of files that are the lab's own once they exist."""
    from infra.render.templating import fill

    static = ROOT / "templates" / "new"
    return {
        f"environments/{name}.yaml": fill("new/spec.yaml.j2", name=name),
        "README.md": fill("new/README.md.j2", name=name),
        "tasks.py": (static / "tasks.py").read_text(encoding="utf-8"),
        "Makefile": (static / "Makefile").read_text(encoding="utf-8"),
        ".gitignore": (static / "gitignore").read_text(encoding="utf-8"),
        ".pre-commit-config.yaml": (static / "pre-commit-config.yaml").read_text(encoding="utf-8"),
        "requirements.txt": f"{requirement()}\n",
    }


def _brought() -> Mapping[str, str]:
    from infra.commands.reference import schema_text

    files = [file for name in _BROUGHT for file in (ROOT / name, *(ROOT / name).rglob("*")) if file.is_file()]
    # A lab's repository cannot build the autoscaler's image.
    files = [file for file in files if not file.match("*-autoscaler.yml")]
    return {
        "environments/spec.schema.json": schema_text(),
        **{str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files},
    }


def requirement() -> str:
    """pip's requirement for this version: a release, or the commit, folder or archive it was installed from
    (PEP 610)."""
    here = distribution("causeway")
    origin = json.loads(here.read_text("direct_url.json") or "{}")
    if vcs := origin.get("vcs_info"):
        return f"causeway[local] @ {vcs['vcs']}+{origin['url']}@{vcs['commit_id']}"
    if origin:
        return f"causeway[local] @ {origin['url']}"
    return f"causeway[local]=={here.version}"
