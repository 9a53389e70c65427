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
"""Whose fields ours are, in the API's own book-keeping (server-side apply)."""

_GET: Final = "see https://kubernetes.io/docs/tasks/tools/"
_OBJECT: Final = re.compile(r"^diff -u.* \S+/LIVE-\d+/(\S+) \S+/MERGED-\d+/\S+$", re.MULTILINE)


class KubectlError(ToolError):
    """kubectl failed; its text is what kubectl said."""


@dataclass(frozen=True, slots=True)
class Program:
    """A kubectl that can talk to this cluster."""

    path: str
    minor: tuple[int, int]


def minor(version: str) -> tuple[int, int]:
    """``v1.36.2``, ``1.36`` → (1, 36)."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    if found is None:
        raise DriveError(f"{version!r} is not a version of Kubernetes")
    return int(found[1]), int(found[2])


def at_least(version: str, wanted: str) -> bool:
    """Whether ``v1.36.2`` is ``1.36``, ``1.36.1`` or ``1.36.2``, or newer: as exact as ``wanted`` is."""
    number = [int(part) for part in re.findall(r"\d+", version.partition("-")[0])]
    least = [int(part) for part in wanted.split(".")]
    return number[: len(least)] >= least


def find(version: str) -> Program:
    """kubectl on PATH. ``DriveError`` without one, or when it is more than a minor away from the cluster's
    ``1.36`` (Kubernetes, "Version Skew Policy")."""
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
    """kubectl with a way to the API."""

    program: Program
    access: Access

    def apply(self, file: Path, *, dry_run: bool = False) -> tuple[str, ...]:
        """Apply a file of objects, server-side; what it says of each. Fields of ours that others have set
        are taken back: the spec is what counts."""
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
        """The objects that applying would change, ``apps.v1.Deployment.kube-system.coredns``."""
        words = ["diff", "--server-side", f"--field-manager={MANAGER}", "--force-conflicts"]
        words += ["--filename", str(file)]
        done = self._done(words, timeout=1800)
        if done.returncode > 1:
            raise self._failed(words, done.returncode, done.stderr)
        return tuple(_OBJECT.findall(done.stdout))

    def objects(self, file: Path) -> list[dict[str, Any]]:
        """Those of a file's objects that there are."""
        text = self.run("get", "--ignore-not-found", "--output=json", "--filename", str(file), timeout=600)
        if not text.strip():
            return []
        found = json.loads(text)
        return list(found["items"]) if found.get("kind") == "List" else [found]

    def delete(self, file: Path) -> tuple[str, ...]:
        """Delete a file's objects; objects that are gone are not an error. Finalizers are not waited for."""
        said = self.run("delete", "--ignore-not-found", "--wait=false", "--filename", str(file), timeout=600)
        return tuple(line for line in said.split("\n") if line)

    def run(self, *words: str, timeout: float = 120, fail: bool = True) -> str:
        """Standard output of a command. ``KubectlError`` with what it said, where a failure counts."""
        done = self._done(words, timeout=timeout)
        if done.returncode and (fail or not done.stdout):
            raise self._failed(words, done.returncode, done.stderr)
        return done.stdout

    def follow(self, *words: str, on_line: Callable[[str], None] = lambda _line: None) -> None:
        """A command that takes its time; a Ctrl-C lets it end by itself, and is raised then."""
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
        """The words and the environment of a command, for who gives it a file or takes one."""
        return self._command(words), self._env()

    def _command(self, words: Sequence[str]) -> list[str]:
        return [self.program.path, "--kubeconfig", str(self.access.kubeconfig), *words]

    def _env(self) -> dict[str, str]:
        return _quiet(os.environ)

    def _failed(self, words: Sequence[str], code: int, said: str) -> KubectlError:
        lines = [line for line in said.strip().splitlines() if line and not line.startswith("Warning:")]
        return KubectlError(("kubectl", *words), code, "\n".join(lines[-12:]))


def _quiet(env: Mapping[str, str]) -> dict[str, str]:
    """Without a person's own configuration: neither another cluster nor another output."""
    kept = {name: value for name, value in env.items() if name not in {"KUBECONFIG", "KUBECTL_EXTERNAL_DIFF"}}
    return {**kept, "KUBECTL_KUBERC": "false"}
