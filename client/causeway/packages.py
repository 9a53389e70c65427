"""Packages of a job (``python:``): which ones, over which packages of an image, and where they are stored.

An environment is stored under a key derived from what it depends on: the files that list its packages, uv's
settings, and the image's Python with its packages. ``install.py`` builds it; this module decides, on laptops
and in the image that fetches code in pods.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from causeway.errors import CausewayError, Problem
from causeway.runtime import PACKAGES

CONTENTS = Path(__file__).with_name("image_contents.py")
INSTALL = Path(__file__).with_name("install.py")
_FORM = 1
"""Version of the environments that ``install.py`` builds: one of another version is not used."""
_SUFFIXES = (".txt", ".toml", ".lock")
_INCLUDED = re.compile(r"(?:-r|-c|--requirements?|--constraints?)(?:\s+|=|(?<=-[rc]))(\S+)")
_URL = re.compile(r"\b(?!file:)[a-z][a-z0-9+.-]*://\S*")
_LOCAL = {
    # A path, or an option that has one.
    ".txt": re.compile(
        r"^\s*(?:-e|--editable|-f|--find-links)\b(?=.*\S)|/|\\\S|\.(?:whl|zip|tar\.\w+)\b", re.M
    ),
    ".toml": re.compile(r"\b(?:path|workspace|editable|find-links|dynamic)\s*=|\bfile:"),
    # "." is the project itself, which is not installed: its code is there already.
    ".lock": re.compile(r'\b(?:editable|directory|path)\s*=\s*"(?!\.")'),
}
"""Lists that refer to files: the installed packages depend on those as well."""
_EDITABLE = {
    ".txt": re.compile(r"^\s*(?:-e|--editable)\b", re.M),
    ".toml": re.compile(r"\beditable\s*="),
    ".lock": re.compile(r'\beditable\s*=\s*"(?!\.")'),
}


@dataclass(frozen=True)
class Packages:
    """The packages of a job, and the name of the environment that has them."""

    file: Path
    key: str
    exactly: Sequence[str] = ()
    """Versions to install, whatever the file allows: ``numpy==2.4.6``."""

    @property
    def has_config(self) -> bool:
        """Whether the file, or pyproject.toml beside it, may contain settings for uv."""
        return self.file.suffix != ".txt"


def check_name(name: str, shipped: Collection[str]) -> list[Problem]:
    """Check a job's ``python``. ``shipped``: the paths of its code."""

    def problem(what: str, hint: str) -> list[Problem]:
        return [Problem("job", "python", what, hint)]

    if Path(name).suffix not in _SUFFIXES:
        return problem(f"{name} is not a list of packages", "use requirements.txt, pyproject.toml or uv.lock")
    if name not in shipped:
        return problem(f"{name} is not in the code", "it has to exist in that folder, and not to be ignored")
    beside = Path(name).with_name("pyproject.toml").as_posix()
    if Path(name).suffix == ".lock" and beside not in shipped:
        return problem(f"{name} has no pyproject.toml beside it", "uv reads both")
    return []


def packages_of(
    code: Path,
    name: str,
    digest: str,
    settings: Mapping[str, str],
    image: Mapping[str, Any],
    exactly: Sequence[str] = (),
) -> Packages:
    """Return the packages of a job over those of an image.

    ``digest``: of the code, which matters if the list names files of it. ``settings``: uv's, as environment
    variables. ``image``: output of ``image_contents.py``. ``exactly``: versions, for a run that is repeated.
    """
    file = code / name
    lists = list(dict.fromkeys(_lists(file)))
    values = {
        "form": _FORM,
        **{part: image[part] for part in ("executable", "version", "platform", "folders")},
        "packages": [(each["name"], each["version"]) for each in image["packages"]],
        "lists": [hashlib.sha256(each.read_bytes()).hexdigest() for each in lists],
        "settings": dict(sorted(settings.items())),
        "code": digest if any(_matches(each, _LOCAL) for each in lists) else "",
        # An editable package stays where its code is.
        "folder": str(code) if any(_matches(each, _EDITABLE) for each in lists) else "",
        **({"exactly": [*exactly]} if exactly else {}),
    }
    return Packages(file, hashlib.sha256(json.dumps(values).encode()).hexdigest(), exactly)


def settings_of(variables: Mapping[str, str]) -> dict[str, str]:
    """Select the environment variables that are settings for uv, for example an index."""
    return {name: value for name, value in variables.items() if name.startswith("UV_")}


def _lists(file: Path) -> Iterator[Path]:
    """Yield the file and all files that it includes."""
    seen: set[Path] = set()

    def walk(one: Path) -> Iterator[Path]:
        if one in seen or not one.is_file():
            return  # uv reports a file that does not exist
        seen.add(one)
        yield one
        if one.suffix == ".lock":
            yield from walk(one.with_name("pyproject.toml"))
        elif one.suffix != ".toml":
            for line in one.read_text(encoding="utf-8", errors="replace").splitlines():
                if match := _INCLUDED.match(line.strip()):
                    yield from walk(one.parent / match[1])

    yield from walk(file)


def _matches(file: Path, patterns: Mapping[str, re.Pattern[str]]) -> bool:
    """Whether a line of a list matches, ignoring URLs and includes."""
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix not in (".toml", ".lock"):
        lines = (re.sub(r"(^|\s)#.*", "", line) for line in text.splitlines())
        text = "\n".join(_URL.sub("", line) for line in lines if not _INCLUDED.match(line.strip()))
    return bool(patterns.get(file.suffix, patterns[".txt"]).search(text))


def plan(
    packages: Packages, name: str, target: Path, image: Mapping[str, Any], *, uv: str, scratch: Path
) -> dict[str, Any]:
    """Return the input of ``install.py``. ``scratch``: a folder for derived files. Raises CausewayError with
    uv's message."""
    requirements = packages.file
    if packages.file.suffix == ".lock":
        requirements = scratch / "requirements.txt"
        command = [
            uv,
            "export",
            "--quiet",
            "--frozen",
            "--no-emit-project",
            "--project",
            str(packages.file.parent),
        ]
        done = subprocess.run(
            [*command, "--output-file", str(requirements)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise CausewayError(f"{name} cannot be read:\n{done.stderr.strip()}")
    constraints = None
    if packages.exactly:
        constraints = scratch / "constraints.txt"
        constraints.write_text("\n".join(packages.exactly) + "\n", encoding="utf-8")
    return {
        "name": name,
        "uv": uv,
        "target": str(target),
        "image": dict(image),
        "requirements": str(requirements),
        "constraints": str(constraints) if constraints else None,
        "folder": str(packages.file.parent),
        "config": packages.has_config,
        "variables": {},
    }


def installed(environment: Path) -> list[str]:
    """Return the packages installed there: ``numpy==2.4.6``. Empty if an older client built the
    environment."""
    try:
        return (environment / PACKAGES).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []


def install_here(
    code: Path, name: str, digest: str, cache: Path, *, python: str = "python3", exactly: Sequence[str] = ()
) -> Path:
    """Return the environment of a job on this machine, building it if it is not in the cache.

    ``python``: the interpreter whose packages it includes. Raises CausewayError with uv's message if that
    fails.
    """
    interpreter = shutil.which(python) or sys.executable
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _run([interpreter, "-c", CONTENTS.read_text(encoding="utf-8"), str(folder / "image.json")])
        image = json.loads((folder / "image.json").read_text(encoding="utf-8"))
        packages = packages_of(code, name, digest, settings_of(os.environ), image, exactly)
        target = cache / packages.key[:32]
        done = target / "installed"
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f"{target.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two runs that start at the same time
            if not done.exists():
                made = plan(packages, name, target, image, uv=find_uv(), scratch=folder)
                (folder / "install.json").write_text(json.dumps(made), encoding="utf-8")
                for each in (INSTALL, INSTALL.with_name("runtime.py")):
                    shutil.copy(each, folder)
                _install(interpreter, folder, name)
                done.touch()
    return target


def _install(interpreter: str, folder: Path, name: str) -> None:
    status = folder / "status.json"
    done = subprocess.run(
        [interpreter, str(folder / "install.py"), str(folder / "install.json")],
        env={**os.environ, "CAUSEWAY_STATUS": str(status)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = json.loads(status.read_text(encoding="utf-8")) if status.exists() else {"lines": [done.stderr]}
        raise CausewayError(f"the packages of {name} cannot be installed:\n" + "\n".join(said["lines"]))


def find_uv() -> str:
    """Find uv on PATH or beside this Python. Raises CausewayError if it is not found."""
    found = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if found is None:
        raise CausewayError("uv not found; `python:` needs it: pip install uv")
    return found


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CausewayError(
            f"{command[0]} cannot list its packages ({done.returncode}):\n{done.stderr.strip()}"
        )
