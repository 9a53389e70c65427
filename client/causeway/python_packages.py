"""``python:`` of a job: packages installed over those that are there, by uv, once for each content."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from causeway.errors import CausewayError, InputError, Problem

_SUFFIXES = (".txt", ".toml", ".lock")


def check_file(code: Path, name: str) -> Path:
    """The file within the code. InputError for one that is not there, or that uv can't install."""
    file = code / name
    if not file.is_file():
        raise InputError([Problem("python", "", f"{name} is not in {code}", "it must be part of the code")])
    if file.suffix not in _SUFFIXES:
        hint = "use requirements.txt, pyproject.toml or uv.lock"
        raise InputError([Problem("python", "", f"{name} is not a list of packages", hint)])
    return file


def install(file: Path, cache: Path, *, python: str = "python3") -> Path:
    """The virtual environment with a file's packages, made if it is not in the cache.

    ``python``: the interpreter whose own packages it has, too. CausewayError with uv's words if it fails.
    """
    uv = _uv()
    interpreter = shutil.which(python) or sys.executable
    version = _output([interpreter, "-VV"])
    sources = [file, file.with_name("pyproject.toml")] if file.name == "uv.lock" else [file]
    key = hashlib.sha256(f"{interpreter}\n{version}\n".encode())
    for source in sources:
        key.update(source.read_bytes())
    target = cache / key.hexdigest()[:32]
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    new = cache / f".{target.name}.new"
    shutil.rmtree(new, ignore_errors=True)
    _run(
        [uv, "venv", "--quiet", "--system-site-packages", "--relocatable", "--python", interpreter, str(new)]
    )
    requirements = file
    if file.name == "uv.lock":
        requirements = new / "requirements.txt"
        export = ["--frozen", "--no-emit-project", "--no-hashes", "--output-file", str(requirements)]
        _run([uv, "export", "--quiet", *export, "--project", str(file.parent)])
    _run([uv, "pip", "install", "--quiet", "--python", str(new / "bin/python"), "-r", str(requirements)])
    new.rename(target)
    return target


def _uv() -> str:
    found = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if found is None:
        raise CausewayError("uv not found, which installs the packages of `python:`; pip install uv")
    return found


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CausewayError(f"{' '.join(command[:3])} failed ({done.returncode}):\n{done.stderr.strip()}")


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
