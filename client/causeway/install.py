"""Installs a job's packages with uv, over those of the image: ``python3 install.py FILE``.

One file that needs Python 3.8 and, beside it, ``runtime.py``: the image's own Python runs it, as packages
depend on it. FILE is the JSON that ``packages.py`` wrote; without FILE there is nothing to install.

uv looks at no packages but those in the environment that it installs into, also where
``--system-site-packages`` shows others (astral-sh/uv#4466). So it is shown the image's as if they were there:
their names, versions and requirements, without their files. What has the right version is then left alone,
what has not is installed, and what was shown goes away again. A ``.pth`` file puts the image's folders behind
the environment's own, so that what is installed wins.

Exit codes: 0; 78 for what can't be installed; 75 where another run installed the same at the same time: its
packages are taken at the next start; 1 where the store does not answer.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Mapping

if TYPE_CHECKING:
    from causeway import runtime
else:
    import runtime  # beside this file

_SHOWN = "causeway (of the image)"
"""The INSTALLER of a package that belongs to the image, as read by uv."""
_SCRIPT = """\
#!{python}
import sys

from {module} import {first}

if __name__ == "__main__":
    sys.exit({call}())
"""
_LARGEST = 5 << 30
"""Maximum size in bytes of a single upload (Amazon S3 User Guide, "Uploading objects")."""
_TOLD = 20


class InstallError(Exception):
    """Lines of uv's error message."""


def install(plan: Mapping[str, Any]) -> None:
    """Create the environment ``target``, replacing an existing one."""
    image, target = plan["image"], plan["target"]
    shutil.rmtree(target, ignore_errors=True)
    _uv(plan, "venv", "--no-project", "--python", image["executable"], target)
    packages = _site_packages(target)
    for each in image["packages"]:
        _show(packages, each)
    config = [] if plan["config"] else ["--no-config"]
    python = os.path.join(target, "bin", "python")
    exactly = ["--constraints", plan["constraints"]] if plan.get("constraints") else []
    _uv(plan, "pip", "install", *config, "--python", python, "-r", plan["requirements"], *exactly)
    _hide(packages)
    with open(os.path.join(target, runtime.PACKAGES), "w", encoding="utf-8") as file:
        file.writelines("%s\n" % line for line in _versions(packages))
    lines = ["import site; site.addsitedir(%r)\n" % folder for folder in image["folders"]]
    with open(os.path.join(packages, "causeway-image.pth"), "w", encoding="utf-8") as file:
        file.writelines(lines)
    _write_scripts(target, image["folders"])


def _versions(packages: str) -> list[str]:
    """Return the versions as sorted lines: ``numpy==2.4.6``."""
    from importlib import metadata

    found = metadata.distributions(path=[packages])
    return sorted("%s==%s" % (each.metadata["Name"], each.version) for each in found)


def _site_packages(target: str) -> str:
    name = "python%d.%d" % sys.version_info[:2]
    return os.path.join(target, "lib", name, "site-packages")


def _uv(plan: Mapping[str, Any], *arguments: str) -> None:
    env = dict(os.environ, UV_PYTHON_DOWNLOADS="never", UV_NO_PROGRESS="1", **plan["variables"])
    env.pop("VIRTUAL_ENV", None)
    try:
        process = subprocess.Popen(
            [plan["uv"], *arguments], cwd=plan["folder"], env=env, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except OSError as error:
        raise InstallError("uv does not run in this image: %s" % error) from None
    assert process.stdout is not None
    said = []
    with process.stdout:
        for line in process.stdout:
            sys.stderr.write(line)
            said.append(line.rstrip())
    if process.wait():
        raise InstallError("\n".join(said[-_TOLD:]) or "uv exited with %d" % process.returncode)


def _show(packages: str, each: Mapping[str, Any]) -> None:
    """Show one of the image's packages to uv: its folder as in PEP 376, without any file of the package."""
    folder = "%s-%s.dist-info" % (each["name"].replace("-", "_"), each["version"])
    path = os.path.join(packages, folder)
    os.makedirs(path, exist_ok=True)
    requires = "".join("Requires-Dist: %s\n" % one for one in each["requires"])
    texts = {
        "METADATA": "Metadata-Version: 2.1\nName: %s\nVersion: %s\n%s"
        % (each["name"], each["version"], requires),
        "INSTALLER": _SHOWN,
        "RECORD": "".join("%s/%s,,\n" % (folder, name) for name in ("METADATA", "INSTALLER", "RECORD")),
    }
    for name, text in texts.items():
        with open(os.path.join(path, name), "w", encoding="utf-8") as file:
            file.write(text)


def _hide(packages: str) -> None:
    for name in os.listdir(packages):
        installer = os.path.join(packages, name, "INSTALLER")
        if name.endswith(".dist-info") and os.path.exists(installer):
            with open(installer, encoding="utf-8") as file:
                shown = file.read() == _SHOWN
            if shown:
                shutil.rmtree(os.path.join(packages, name))


def _write_scripts(target: str, folders: list[str]) -> None:
    """Create scripts for the programs of the image's packages (torchrun, accelerate) that start the
    environment's Python: the image's Python would not find what was installed."""
    from importlib import metadata

    python = os.path.join(target, "bin", "python")
    for each in metadata.distributions(path=folders):
        for entry in each.entry_points:
            path = os.path.join(target, "bin", entry.name)
            match = re.fullmatch(r"([\w.]+)\s*:\s*([\w.]+)\s*(\[.*\])?", entry.value)
            if entry.group != "console_scripts" or match is None or os.path.lexists(path):
                continue
            call = match.group(2)
            first = call.partition(".")[0]
            with open(path, "w", encoding="utf-8") as file:
                file.write(_SCRIPT.format(python=python, module=match.group(1), first=first, call=call))
            os.chmod(path, 0o755)


def send(plan: Mapping[str, Any]) -> int:
    """Upload the environment to the store for other workers and later starts; return the exit code."""
    where, target = plan["send"], plan["target"]
    archive = target + ".tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(target, arcname=".")
    size = os.path.getsize(archive)
    if size > _LARGEST:
        raise InstallError(
            "%.1f GiB of packages are more than the store accepts: build an image" % (size / 2**30)
        )
    digest = hashlib.sha256()
    with open(archive, "rb") as file:
        for part in iter(lambda: file.read(1 << 20), b""):
            digest.update(part)
    with open(archive, "rb") as file:
        _put(where["archive"], file, size)
    os.remove(archive)
    pointer = json.dumps({"archive": where["name"], "sha256": digest.hexdigest()}).encode()
    try:
        _put(where["pointer"], pointer, len(pointer), **where["headers"])
    except urllib.error.HTTPError as error:
        if error.code in (409, 412):
            return runtime.STOPPED
        raise
    return 0


def _put(url: str, body: Any, size: int, **headers: str) -> None:
    request = urllib.request.Request(url, body, method="PUT")  # noqa: S310  https of the store
    request.add_header("Content-Length", str(size))
    request.add_header("Content-Type", "application/octet-stream")
    for name, value in headers.items():
        request.add_header(name, value)
    with urllib.request.urlopen(request, timeout=600):  # noqa: S310
        pass


def main(file: str) -> int:
    # Process 1 of a container ignores signals without a handler. uv is killed with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(runtime.STOPPED))
    if not os.path.exists(file):
        return 0
    with open(file, encoding="utf-8") as opened:
        plan = json.load(opened)
    status = os.environ.get("CAUSEWAY_STATUS", "/dev/termination-log")

    def ended(code: int, reason: str, lines: list[str]) -> int:
        runtime.write_status(status, {"exit": code, "reason": reason, "lines": lines, "at": time.time()})
        return code

    try:
        install(plan)
        if not plan.get("send"):
            return 0
        code = send(plan)
    except InstallError as error:
        reason = "the packages of %s cannot be installed" % plan["name"]
        return ended(runtime.NEVER_WORKS, reason, str(error).splitlines())
    except (urllib.error.URLError, OSError) as error:
        return ended(1, "the store refuses the packages: %s" % error, [])
    if code:
        return ended(code, "another run has installed the same packages", [])
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
