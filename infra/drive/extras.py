"""What pip installs only if asked, ``pip install 'causeway[local]'``: a command that needs it says so."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Final, Literal

from infra.errors import UsageError

MOTO: Final = "5.2"
"""The release of moto whose inside ``infra.localaws`` changes; ``pyproject.toml`` pins it."""

_MODULES: Final = {"local": "moto", "plots": "matplotlib"}


def require(extra: Literal["local", "plots"], purpose: str) -> None:
    """``UsageError`` if an extra is not installed. ``purpose``: what needs it, ``the embedded AWS``."""
    module = _MODULES[extra]
    if find_spec(module) is None:
        raise UsageError(f"{purpose} needs {module}, which is not installed; {_install(extra)}")


def require_local() -> None:
    """``UsageError`` without the moto that the embedded AWS is made of."""
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
