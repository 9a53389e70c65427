"""Optional dependencies, ``pip install 'causeway[local]'``: commands that need a missing one say so."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Final, Literal

from infra.errors import UsageError

MOTO: Final = "5.2"
"""The release of moto that ``infra.localaws`` patches; pinned in ``pyproject.toml``."""

_MODULES: Final = {"local": "moto", "plots": "matplotlib"}


def require(extra: Literal["local", "plots"], purpose: str) -> None:
    """Raise ``UsageError`` if an extra is not installed. ``purpose``: what needs it, ``the embedded AWS``."""
    module = _MODULES[extra]
    if find_spec(module) is None:
        raise UsageError(f"{purpose} needs {module}, which is not installed; {_install(extra)}")


def require_local() -> None:
    """Raise ``UsageError`` if the moto release that the embedded AWS needs is not installed."""
    require("local", "the embedded AWS")
    try:
        installed = version("moto")
    except PackageNotFoundError:
        installed = "of an unknown version"
    if not installed.startswith(f"{MOTO}."):
        found = f"moto {MOTO}, and {installed} is installed"
        raise UsageError(f"the embedded AWS needs {found}; {_install('local')}")


def _install(extra: str) -> str:
    return f"run: pip install 'causeway[{extra}]'"
