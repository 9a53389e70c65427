"""The part of the client that is sent to machines, and the commands that start it there."""

from __future__ import annotations

import hashlib
import io
import tarfile
from functools import cache
from pathlib import Path

import causeway

_PACKAGE = Path(str(causeway.__file__)).parent
MODULES = (
    "__init__.py", "program.py", "runtime.py", "errors.py", "checkpoints.py", "storage.py",
    "reported.py", "saving.py", "restoring.py", "places.py", "shipped.py", "packages.py", "install.py",
    "image_contents.py", "machines/__init__.py", "machines/gang.py", "machines/host.py", "machines/leases.py",
    "machines/worker.py", "machines/entering.py", "machines/tickets.py", "machines/waiting.py",
    "machines/reserving.py",
)  # fmt: skip
"""These modules need Python 3.9 and nothing else."""
_MAIN = """\
import os
import sys

sys.path[0] = os.path.dirname(os.path.abspath(__file__))
from pathlib import Path

from causeway.machines import entering, reserving, worker

verb, run, *words = sys.argv[1:]
if verb == "reserve":
    sys.exit(reserving.main(Path(run)))
name, *words = words
sys.exit(entering.main(Path(run), name, words) if verb == "enter" else worker.main(Path(run), name))
"""
_FIRST = """
import io, json, os, shutil, sys, tarfile, tempfile
from pathlib import Path
if sys.version_info < (3, 9):
    print("causeway: python %d.%d" % sys.version_info[:2], file=sys.stderr)
    sys.exit(126)
name, size, verb = sys.argv[2:5]
data = sys.stdin.buffer.read(int(size))
root = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "causeway" / "machines"
kit = root / "kits" / name
sys.stdout.write("\\0causeway\\n")
sys.stdout.flush()
try:
    if not kit.exists():
        kit.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Machines may share this folder, so that a process id does not tell who made it.
        own = Path(tempfile.mkdtemp(prefix=name + ".", dir=kit.parent))
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for each in tar:
                path = own / each.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(tar.extractfile(each).read())
        try:
            own.rename(kit)
        except OSError:
            if not kit.exists():
                raise
            shutil.rmtree(own)
except OSError as error:
    print(json.dumps({"error": "%s: %s" % (error.filename or root, error.strerror)}))
    sys.exit(1)
sys.path.insert(0, str(kit))
from causeway.machines import host
sys.exit(host.main(kit, verb, json.loads(sys.stdin.buffer.readline()), sys.stdin.buffer))
"""
MARK = b"\0causeway\n"
"""Marks the beginning of an answer; the output of a login shell may precede it."""
MARK_OF_PRINTF = "\\0causeway\\n"
"""The same mark for printf(1)."""


@cache
def kit() -> tuple[str, bytes]:
    """Return its name and its content, a tar file."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=6) as tar:
        for name in MODULES:
            _add(tar, f"causeway/{name}", (_PACKAGE / name).read_bytes())
        _add(tar, "__main__.py", _MAIN.encode())
    digest = hashlib.sha256(b"".join((_PACKAGE / name).read_bytes() for name in MODULES) + _MAIN.encode())
    return digest.hexdigest()[:16], data.getvalue()


def command(verb: str) -> list[str]:
    """Return the command for ssh; it first reads ``stdin_of``."""
    name, data = kit()
    code = "import sys; exec(sys.stdin.buffer.read(int(sys.argv[1])))"
    return ["python3", "-c", code, str(len(_FIRST.encode())), name, str(len(data)), verb]


def stdin_of(request: bytes) -> bytes:
    """Return the beginning of stdin. ``request``: a line of JSON."""
    return _FIRST.encode() + kit()[1] + request


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
