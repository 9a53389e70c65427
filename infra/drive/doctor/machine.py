"""Checks of this computer: engine, provider, tools, disk space."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from infra.drive.build_folders import Folders
from infra.drive.doctor.context import Context, Finding
from infra.drive.engine import EMBEDDED, Engine, engines, find_engine
from infra.errors import DriveError

ROOM: Final = 2 * 1024**3
"""Minimum free bytes: the AWS provider alone unpacks to some 700 MB."""

REGISTRY: Final = "https://registry.terraform.io/.well-known/terraform.json"

_TOOLS: Final = {
    "git": ("--version", "Install it from your system's packages."),
    "ssh": ("-V", "Commands on machines need it: install OpenSSH's client."),
    "rsync": ("--version", "Only `invoke converge` needs it: install it from your system's packages."),
    "dot": ("-V", "Only `invoke topology` needs it: install Graphviz from your system's packages."),
    "packer": (
        "--version",
        "Only baking images needs it: https://developer.hashicorp.com/packer/install",
    ),
}
"""Programs beside Terraform: the option that prints their version, and how to install them."""


def python(_patient: Context) -> Iterator[Finding]:
    # The package manager that installs Causeway checks the Python version.
    yield Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")


def engine(context: Context) -> Iterator[Finding]:
    for program, found in engines(context.env):
        if isinstance(found, DriveError):
            yield Finding("engine", "warn", str(found), f"Upgrade or remove {program}.")
    try:
        used: Engine = find_engine(context.env)
    except DriveError as problem:
        yield Finding("engine", "fail", str(problem), "Install Terraform or OpenTofu, 1.6 or newer.")
        return
    if used.name == EMBEDDED:
        yield Finding(
            "engine",
            "ok",
            f"Terraform {used.version}, embedded",
            "A team should pin one engine: install terraform or tofu, and it is used instead.",
        )
    else:
        yield Finding("engine", "ok", f"{used} at {used.argv[0]}")


def cli_config(context: Context) -> Iterator[Finding]:
    named = context.env.get("TF_CLI_CONFIG_FILE")
    if named and not Path(named).is_file():
        yield Finding(
            "cli config",
            "warn",
            f"TF_CLI_CONFIG_FILE names {named}, which is not there: mirrors and tokens in it are not used",
            "Correct the variable, or unset it.",
        )


def providers(context: Context) -> Iterator[Finding]:
    installed = Folders(context.build).data / "providers"
    if any(installed.glob("*/*/*/*/*")):
        yield Finding("providers", "ok", f"installed in {installed}")
        return
    config = context.env.get("TF_CLI_CONFIG_FILE") or Path.home() / ".terraformrc"
    try:
        said = Path(config).read_text(encoding="utf-8")
    except OSError:
        said = ""
    mirrors = re.findall(r'^\s*path\s*=\s*"(.+)"', said, re.MULTILINE)
    for mirror in mirrors:
        if Path(mirror).is_dir():
            yield Finding("providers", "ok", f"from the mirror {mirror}")
        else:
            yield Finding(
                "providers", "fail", f"the mirror {mirror} is not there", f"Mount it, or correct {config}."
            )
    network = re.findall(r'^\s*url\s*=\s*"(.+)"', said, re.MULTILINE)
    if network or not mirrors:
        yield from map(_reachable, network or [REGISTRY])


def _reachable(url: str) -> Finding:
    import urllib.error
    import urllib.parse
    import urllib.request

    host = urllib.parse.urlsplit(url).hostname
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - Terraform asks there too
            answer.read(1)
    except urllib.error.HTTPError:
        pass  # a mirror returns an error for its root path, but it is reachable
    except (OSError, ValueError) as problem:
        return Finding(
            "providers",
            "fail",
            f"{host} can't be reached: {problem}",
            "Set HTTPS_PROXY, or a filesystem mirror in the CLI config:\n"
            "https://developer.hashicorp.com/terraform/cli/config/config-file#provider-installation",
        )
    return Finding("providers", "ok", f"{host} can be reached")


def tools(context: Context) -> Iterator[Finding]:
    for tool, (option, fix) in _TOOLS.items():
        if tool == "packer" and not context.builds:
            continue
        found = shutil.which(tool, path=context.env.get("PATH"))
        if found is None:
            yield Finding(tool, "warn", "not on PATH", fix)
            continue
        try:
            told = subprocess.run([found, option], capture_output=True, text=True, timeout=20, check=True)
            said = (told.stdout or told.stderr).splitlines()[0]
        except (OSError, subprocess.SubprocessError, IndexError) as problem:
            yield Finding(tool, "warn", f"{found} does not say its version: {problem}", fix)
        else:
            yield Finding(tool, "ok", f"{said} at {found}")


def disk(context: Context) -> Iterator[Finding]:
    place = context.build.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    said = f"{free / 1024**3:.1f} GiB free in {place}"
    if free < ROOM:
        yield Finding("disk", "warn", said, f"Terraform's AWS provider alone takes {ROOM / 1024**3:.0f} GiB.")
    else:
        yield Finding("disk", "ok", said)
