"""Wheels of nothing but a version, for an index that is a folder."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path


def wheel(folder: Path, name: str, version: str, *, requires: Sequence[str] = (), program: str = "") -> Path:
    """A package with a module of its name, where ``version`` is its version.

    ``program``: the name of one that prints its environment and the version.
    """
    folder.mkdir(parents=True, exist_ok=True)
    about = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    files = {
        f"{name}.py": f"import sys\nversion = {version!r}\ndef main(): print(sys.prefix, version)\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {each}\n" for each in requires),
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    if program:
        files[f"{about}/entry_points.txt"] = f"[console_scripts]\n{program} = {name}:main\n"
    with zipfile.ZipFile(path, "w") as file:
        for inner, text in files.items():
            file.writestr(zipfile.ZipInfo(inner), text)
    return path
