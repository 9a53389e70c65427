"""Explains why a program did not find a module that is in the folder it was shipped from."""

from __future__ import annotations

from pathlib import Path

from causeway.code.tree import appending, look
from causeway.errors import InputError
from causeway.job import Code


def why_not_found(module: str, folder: Path, code: Code) -> str:
    """Return the fix if the folder has the module; empty if it does not.

    Either the module is not shipped, or it is and Python does not look there.
    """
    root = folder / code.path
    path = _path_of(module, root)
    if path is None:
        return ""
    try:
        shipped = {entry.path for entry in look(root, include=code.include, exclude=code.exclude).entries}
    except InputError:
        return ""
    above = path.rpartition("/")[0]
    if path not in shipped:
        take = f"!/{above}/" if above else f"!/{path}"
        return f"{path} is in this folder and is not shipped: {appending(take)}"
    top = module.partition(".")[0]
    parent = "/".join(path.split("/")[: path.split("/").index(top)]) if top in path.split("/") else above
    return f"{path} is shipped, but not in Python's search path: --env PYTHONPATH={parent}" if parent else ""


def _path_of(module: str, root: Path) -> str | None:
    """Return the file of a module at the top level of the folder, in ``src``, or in another subfolder."""
    parts = "/".join(module.split("."))
    names = (f"{parts}.py", f"{parts}/__init__.py")
    patterns = (f"{above}{name}" for above in ("", "*/") for name in names)
    found = [each for pattern in patterns for each in sorted(root.glob(pattern))]
    return found[0].relative_to(root).as_posix() if found else None
