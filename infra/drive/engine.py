"""Selects the engine: ``terraform`` or ``tofu`` from PATH, else the embedded one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.errors import DriveError

MINIMUM = (1, 6)
"""The first release of OpenTofu, and the Terraform release it was forked from."""

EMBEDDED = "embedded"
OVERRIDE = "CAUSEWAY_ENGINE"


@dataclass(frozen=True, slots=True)
class Engine:
    """A program with Terraform's command line."""

    name: str
    """``terraform``, ``tofu`` or ``embedded``."""
    version: str
    """The version that it reports: ``1.11.4``."""
    argv: tuple[str, ...]
    """The command, without arguments."""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def find_engine(environ: Mapping[str, str] | None = None) -> Engine:
    """The engine to use.

    ``CAUSEWAY_ENGINE``, if set, selects it: a path, a name on PATH, or ``embedded``. Otherwise the first of
    ``terraform`` and ``tofu`` on PATH that is new enough, else the embedded one. Raises `DriveError` if the
    selected one cannot be used.
    """
    environ = os.environ if environ is None else environ
    wanted = environ.get(OVERRIDE, "")
    if wanted == EMBEDDED:
        return _embedded()
    if wanted:
        program = shutil.which(wanted, path=environ.get("PATH"))
        if program is None:
            raise DriveError(f"{OVERRIDE}={wanted}: no such program; unset it or give the path of one")
        return _usable(program)
    for name in ("terraform", "tofu"):
        program = shutil.which(name, path=environ.get("PATH"))
        if program is None:
            continue
        try:
            return _usable(program)
        except DriveError:
            continue
    return _embedded()


def engines(environ: Mapping[str, str] | None = None) -> list[tuple[str, Engine | DriveError]]:
    """Each engine on PATH, or the reason why it cannot be used: for ``invoke doctor``."""
    environ = os.environ if environ is None else environ
    found: list[tuple[str, Engine | DriveError]] = []
    for name in ("terraform", "tofu"):
        program = shutil.which(name, path=environ.get("PATH"))
        if program is None:
            continue
        try:
            found.append((program, _usable(program)))
        except DriveError as problem:
            found.append((program, problem))
    return found


def parse_version(text: str) -> tuple[int, ...]:
    """``1.12.0-beta1`` → (1, 12, 0). Raises ValueError if it is not a version."""
    return tuple(int(part) for part in text.split("-", 1)[0].split("+", 1)[0].split("."))


def _usable(program: str) -> Engine:
    try:
        said = subprocess.run(
            [program, "version", "-json"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "CHECKPOINT_DISABLE": "1"},
        )
        # tofu also prints "terraform_version".
        version = str(json.loads(said.stdout)["terraform_version"])
        new_enough = parse_version(version)[: len(MINIMUM)] >= MINIMUM
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as problem:
        raise DriveError(f"{program} does not answer `version -json` as Terraform does: {problem}") from None
    if not new_enough:
        least = ".".join(map(str, MINIMUM))
        raise DriveError(f"{program} is version {version}; {least} or newer is needed")
    name = "tofu" if Path(program).name.startswith("tofu") else "terraform"
    return Engine(name, version, (program,))


def _embedded() -> Engine:
    # -P: do not import from Terraform's working folder.
    argv = (sys.executable, "-P", "-m", "infra.drive.embedded_terraform")
    try:
        said = subprocess.run(
            [*argv, "version", "-json"], capture_output=True, text=True, timeout=60, check=True
        )
        version = str(json.loads(said.stdout)["terraform_version"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as problem:
        raise DriveError(
            f"no terraform or tofu on PATH, and the embedded one does not run ({problem}); "
            "install Terraform 1.6 or newer: https://developer.hashicorp.com/terraform/install"
        ) from None
    return Engine(EMBEDDED, version, argv)
