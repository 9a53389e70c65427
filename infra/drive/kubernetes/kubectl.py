"""Calls kubectl. No other module does."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.drive import process
from infra.drive.kubernetes.access import Access
from infra.errors import DriveError, ToolError

MANAGER: Final = "causeway"
"""The field manager of our fields (server-side apply)."""

_GET: Final = "see https://kubernetes.io/docs/tasks/tools/"
_OBJECT: Final = re.compile(r"^diff -u.* \S+/LIVE-\d+/(\S+) \S+/MERGED-\d+/\S+$", re.MULTILINE)


class KubectlError(ToolError):
    """kubectl failed; the text is kubectl's error."""


@dataclass(frozen=True, slots=True)
class Program:
    """A kubectl whose version is compatible with the cluster."""

    path: str
    minor: tuple[int, int]


def minor(version: str) -> tuple[int, int]:
    """``v1.36.2``, ``1.36`` → (1, 36)."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    if found is None:
        raise DriveError(f"{version!r} is not a version of Kubernetes")
    return int(found[1]), int(found[2])


def at_least(version: str, wanted: str) -> bool:
    """Whether ``v1.36.2`` is at least ``1.36`` or ``1.36.1``: compared to the precision of ``wanted``."""
    number = [int(part) for part in re.findall(r"\d+", version.partition("-")[0])]
    least = [int(part) for part in wanted.split(".")]
    return number[: len(least)] >= least


def find(version: str) -> Program:
    """kubectl on PATH. Raises ``DriveError`` if it is missing, or more than one minor version away from the
    cluster's ``1.36`` (Kubernetes, "Version Skew Policy")."""
    path = shutil.which("kubectl")
    if path is None:
        raise DriveError(f"kubectl not found on PATH; install kubectl {version}: {_GET}")
    done = subprocess.run(
        [path, "version", "--client", "--output=json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=_quiet(os.environ),
    )
    try:
        told = json.loads(done.stdout)["clientVersion"]
    except (ValueError, KeyError):
        raise DriveError(f"{path} does not tell its version: {done.stderr.strip() or done.stdout}") from None
    has, wants = minor(str(told["gitVersion"])), minor(version)
    if has[0] != wants[0] or abs(has[1] - wants[1]) > 1:
        raise DriveError(
            f"{path} is {told['gitVersion']}, and the cluster is {version}: kubectl may be one minor away; "
            f"install kubectl {version}: {_GET}"
        )
    return Program(path, has)


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl with access to the API."""

    program: Program
    access: Access

    def apply(self, file: Path, *, dry_run: bool = False) -> tuple[str, ...]:
        """Apply a file of objects, server-side; returns kubectl's line for each. Fields of ours that others
        have set are overwritten, as the spec is the source of truth."""
        said = self.run(
            "apply",
            "--server-side",
            f"--field-manager={MANAGER}",
            "--force-conflicts",
            *(["--dry-run=server"] if dry_run else []),
            "--filename",
            str(file),
            timeout=1800,
        )
        return tuple(said.split("\n")[:-1])

    def diff(self, file: Path) -> tuple[str, ...]:
        """The objects that applying would change: ``apps.v1.Deployment.kube-system.coredns``."""
        words = ["diff", "--server-side", f"--field-manager={MANAGER}", "--force-conflicts"]
        words += ["--filename", str(file)]
        done = self._done(words, timeout=1800)
        if done.returncode > 1:
            raise self._failed(words, done.returncode, done.stderr)
        return tuple(_OBJECT.findall(done.stdout))

    def objects(self, file: Path) -> list[dict[str, Any]]:
        """The objects of a file that exist."""
        text = self.run("get", "--ignore-not-found", "--output=json", "--filename", str(file), timeout=600)
        if not text.strip():
            return []
        found = json.loads(text)
        return list(found["items"]) if found.get("kind") == "List" else [found]

    def delete(self, file: Path) -> tuple[str, ...]:
        """Delete a file's objects. Missing objects are not an error. Does not wait for finalizers."""
        said = self.run("delete", "--ignore-not-found", "--wait=false", "--filename", str(file), timeout=600)
        return tuple(line for line in said.split("\n") if line)

    def run(self, *words: str, timeout: float = 120, fail: bool = True) -> str:
        """The standard output of a command. Raises ``KubectlError`` with its error if it fails, unless
        ``fail`` is False."""
        done = self._done(words, timeout=timeout)
        if done.returncode and (fail or not done.stdout):
            raise self._failed(words, done.returncode, done.stderr)
        return done.stdout

    def follow(self, *words: str, on_line: Callable[[str], None] = lambda _line: None) -> None:
        """Run a long command. On Ctrl-C, waits until it has ended, then raises."""
        said: list[str] = []

        def hear(line: str) -> None:
            said.append(line)
            on_line(line)

        done = process.run(self._command(words), folder=self.access.folder, env=self._env(), on_line=hear)
        if done.interrupted:
            raise KeyboardInterrupt
        if done.exit_code:
            raise self._failed(words, done.exit_code, done.stderr or "\n".join(said[-5:]))

    def _done(self, words: Sequence[str], *, timeout: float) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                self._command(words),
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout,
                env=self._env(),
                cwd=self.access.folder,
            )
        except subprocess.TimeoutExpired:
            raise DriveError(f"kubectl {words[0]}: not finished after {timeout:.0f} s") from None

    def command(self, *words: str) -> tuple[list[str], dict[str, str]]:
        """The command line and the environment, for callers that pipe files."""
        return self._command(words), self._env()

    def _command(self, words: Sequence[str]) -> list[str]:
        return [self.program.path, "--kubeconfig", str(self.access.kubeconfig), *words]

    def _env(self) -> dict[str, str]:
        return _quiet(os.environ)

    def _failed(self, words: Sequence[str], code: int, said: str) -> KubectlError:
        lines = [line for line in said.strip().splitlines() if line and not line.startswith("Warning:")]
        return KubectlError(("kubectl", *words), code, "\n".join(lines[-12:]))


def _quiet(env: Mapping[str, str]) -> dict[str, str]:
    """An environment without the user's kubectl configuration, which could select another cluster or
    format."""
    kept = {name: value for name, value in env.items() if name not in {"KUBECONFIG", "KUBECTL_EXTERNAL_DIFF"}}
    return {**kept, "KUBECTL_KUBERC": "false"}
