"""The files of the client that are copied to where programs run: the runtime, and what they import."""

from __future__ import annotations

import shutil
from pathlib import Path

import causeway
from causeway import program, runtime

_LIB = "lib"


def ship(folder: Path) -> None:
    """Copy ``runtime.py`` and, beside it, ``lib``, which the runtime adds to the path of Python programs."""
    shutil.copy(runtime.__file__, folder / "runtime.py")
    package = folder / _LIB / "causeway"
    package.mkdir(parents=True, exist_ok=True)
    for module in (causeway, program):
        assert module.__file__ is not None
        shutil.copy(module.__file__, package)
