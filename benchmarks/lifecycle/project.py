"""A project folder, as somebody's clone is, and the command line in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

REPOSITORY: Final = Path(__file__).parents[2]

NEVER_REHEARSED: Final = ("spec", "validate")
"""Tasks that read the spec only."""

Spec = dict[str, Any]
"""A spec as YAML has it."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended."""

    command: str
    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"{self.command}: exit code {self.code}\n{self.out[-3000:]}\n{self.err[-6000:]}"


@dataclass(frozen=True)
class Project:
    """An environment in a folder of its own, driven against the embedded AWS."""

    folder: Path
    environment: str
    variables: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def copied(cls, folder: Path, environment: str) -> Project:
        """With the shipped specs and none of their lock files."""
        ignored = shutil.ignore_patterns("*.lock.yaml")
        shutil.copytree(REPOSITORY / "environments", folder / "environments", ignore=ignored)
        return cls(folder, environment)

    def run(self, *arguments: str) -> Result:
        """Run a task; any exit code."""
        command = [sys.executable, "-m", "invoke", "--search-root", str(REPOSITORY), *arguments]
        command += ["--env", self.environment]
        if arguments[0] not in NEVER_REHEARSED:
            command.append("--rehearse")
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, **self.variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return Result(" ".join(arguments), done.returncode, done.stdout, done.stderr)

    def invoke(self, *arguments: str, code: int = 0) -> str:
        """Run a task; its standard output. `AssertionError` for another exit code, or a traceback."""
        result = self.run(*arguments)
        assert result.code == code, str(result)
        assert "Traceback" not in result.err, str(result)
        return result.out

    @property
    def spec_file(self) -> Path:
        return self.folder / "environments" / f"{self.environment}.yaml"

    @property
    def build(self) -> Path:
        return self.folder / "build" / f"{self.environment}.rehearsal"

    def spec(self) -> Spec:
        """The spec with all that it extends, without which it can be edited anywhere."""
        merged: Spec = yaml.safe_load(self.invoke("spec"))
        merged.pop("extends", None)
        return merged

    def write(self, spec: Spec) -> None:
        """Make this the spec."""
        self.spec_file.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")

    def inventory(self) -> dict[str, Any]:
        """What the embedded AWS holds: site → kind → identifiers."""
        status: dict[str, Any] = json.loads(self.invoke("local.status", "--json"))
        held: dict[str, Any] = status["inventory"]
        return held
