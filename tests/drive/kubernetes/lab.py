"""A project in a folder whose cluster is the API server of the tests, and its commands in processes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from kube.plane import Plane
from kube_tools import kubectl
from stores import local_store

from infra.drive.secrets.local import LocalStore

ROOT = Path(__file__).parents[3]


@dataclass
class Lab:
    folder: Path
    env: dict[str, str]

    def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Standard output and error of a Python module that has to end with ``code``."""
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout, done.stderr

    def invoke(self, *words: str, code: int = 0) -> tuple[str, str]:
        return self.run("invoke", "--search-root", str(ROOT), *words, "--env", "lab", code=code)


def lab_of(folder: Path, plane: Plane, store: LocalStore, spec: str) -> Lab:
    """``store``: the keys that the plane was begun with."""
    (folder / "environments").mkdir()
    (folder / "environments" / "lab.yaml").write_text(spec)
    (folder / "tasks.py").symlink_to(ROOT / "tasks.py")
    own = local_store(folder, "lab")
    own.add(store.read(store.names("kubernetes/pki/")))
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "KUBE"))},
        "PYTHONPATH": str(ROOT),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "CAUSEWAY_API": plane.address,
        "PATH": f"{Path(kubectl()).parent}{os.pathsep}{os.environ['PATH']}",
    }
    return Lab(folder, env)
