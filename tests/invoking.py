"""`invoke` as a person runs it: a process in the folder of a project."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from infra.drive import localaws
from infra.drive.localaws import Server

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Project:
    """A folder with one environment, and the variables that its commands get beside the test's own."""

    folder: Path
    environment: str
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def spec_file(self) -> Path:
        return self.folder / "environments" / f"{self.environment}.yaml"

    def write(self, spec: str) -> None:
        self.spec_file.parent.mkdir(exist_ok=True)
        self.spec_file.write_text(spec, encoding="utf-8")

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "invoke", "--search-root", str(ROOT), *words]
        return subprocess.Popen(
            [*command, "--env", self.environment],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **self.variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def invoke(self, *words: str, code: int = 0, seconds: float = 900) -> tuple[str, str]:
        """What it says on both of its outputs; it ends with this code, and without a traceback."""
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=seconds)
        finally:
            process.kill()
        assert process.returncode == code, f"{out[-3000:]}\n{err[-6000:]}"
        assert "Traceback" not in err, err
        return out, err


@contextmanager
def on_embedded_aws(folder: Path, environment: str, spec: str) -> Iterator[tuple[Project, Server]]:
    """A project whose embedded AWS runs already."""
    project = Project(folder, environment)
    project.write(spec)
    server = localaws.start((folder / "build" / environment / "state" / "aws").absolute(), environment)
    try:
        yield project, server
    finally:
        localaws.stop(server.folder)
