"""Calls Helm. The rendered releases are listed in ``charts/releases.yaml``."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from infra.drive import process
from infra.drive.kubernetes.access import Access
from infra.drive.kubernetes.refs import Ref, parsed, ref
from infra.errors import DriveError, ToolError

MINIMUM: Final = (3, 14, 0)
"""``--labels`` of releases, and reading ``--selector`` by them."""

LABEL: Final = "managed-by=causeway"

_GET: Final = "see https://helm.sh/docs/intro/install/"


class HelmError(ToolError):
    """Helm failed; the text is Helm's error."""


@dataclass(frozen=True, slots=True)
class Release:
    """A chart to install."""

    name: str
    namespace: str
    chart: str
    version: str
    repository: str
    """``https://…`` or ``oci://…``."""
    values: Path
    timeout: str
    """In Helm's format: ``10m``."""

    @property
    def seconds(self) -> float:
        """The timeout in seconds."""
        units = {"h": 3600, "m": 60, "s": 1}
        return float(
            sum(int(count) * units[unit] for count, unit in re.findall(r"(\d+)([hms])", self.timeout))
        )


@dataclass(frozen=True, slots=True)
class Installed:
    """An installed release."""

    name: str
    namespace: str
    chart: str
    """``kueue-0.19.2``."""
    status: str
    """``deployed``, ``failed``, ``pending-upgrade`` …"""
    app: str

    @property
    def pending(self) -> bool:
        return self.status.startswith("pending-")


@dataclass(frozen=True, slots=True)
class Program:
    """The Helm program."""

    path: str
    version: tuple[int, int, int]


def find() -> Program:
    """Helm on PATH. Raises ``DriveError`` if it is missing or too old."""
    path = shutil.which("helm")
    if path is None:
        raise DriveError(f"helm not found on PATH; install Helm 3.14 or newer: {_GET}")
    done = subprocess.run(
        [path, "version", "--template", "{{.Version}}"],
        capture_output=True, text=True, check=False, timeout=60, env=_env(os.environ),
    )  # fmt: skip
    found = re.search(r"v(\d+)\.(\d+)\.(\d+)", done.stdout)
    if found is None:
        raise DriveError(f"{path} does not tell its version: {done.stderr.strip() or done.stdout}")
    version = (int(found[1]), int(found[2]), int(found[3]))
    if version < MINIMUM:
        raise DriveError(f"{path} is {found[0]}; Helm 3.14 or newer is needed: {_GET}")
    return Program(path, version)


def read(charts: Path) -> list[Release]:
    """The rendered releases, in order; empty without the file."""
    import yaml

    try:
        rows = yaml.safe_load((charts / "releases.yaml").read_text(encoding="utf-8")) or []
    except FileNotFoundError:
        return []
    if isinstance(rows, dict):
        rows = rows.get("releases") or []
    try:
        return [
            Release(
                name=str(row["name"]),
                namespace=str(row["namespace"]),
                chart=str(row["chart"]),
                version=str(row["version"]),
                repository=str(row["repository"]),
                values=(charts / str(row["values"])).absolute(),
                timeout=str(row.get("timeout", "10m")),
            )
            for row in rows
        ]
    except (KeyError, TypeError) as problem:
        raise DriveError(f"{charts / 'releases.yaml'} cannot be parsed: {problem}") from None


@dataclass(frozen=True, slots=True)
class Helm:
    """Helm with access to the API."""

    program: Program
    access: Access

    def releases(self, *, ours: bool = False) -> list[Installed]:
        """The installed releases, including failed and pending ones; ``ours``: only those with our label."""
        text = self._run("list", "--all-namespaces", "--output=json", *self._every(), *self._ours(ours))
        return [
            Installed(row["name"], row["namespace"], row["chart"], row["status"], row.get("app_version", ""))
            for row in json.loads(text or "[]")
        ]

    def values(self, name: str, namespace: str) -> Any:
        """The values that a release was installed with."""
        return json.loads(self._run("get", "values", name, "--namespace", namespace, "--output=json"))

    def current(self, release: Release, there: Installed | None) -> bool:
        """Whether the installed release equals the rendered one."""
        import yaml

        if there is None or there.status != "deployed":
            return False
        if there.chart != f"{release.chart.rpartition('/')[2]}-{release.version}":
            return False
        wanted = yaml.safe_load(release.values.read_text(encoding="utf-8")) or {}
        return bool((self.values(release.name, release.namespace) or {}) == wanted)

    def install(self, release: Release) -> None:
        """Install or upgrade a release without waiting for its workloads (``rollout.wait``).

        A Ctrl-C is passed on once.
        """
        words = [
            "upgrade", "--install", release.name, *self._chart(release),
            "--version", release.version, "--namespace", release.namespace, "--create-namespace",
            "--values", str(release.values), "--timeout", release.timeout, "--history-max", "5",
            "--labels", LABEL,
        ]  # fmt: skip
        done = process.run(
            [self.program.path, *words, "--kubeconfig", str(self.access.kubeconfig)],
            folder=self.access.folder,
            env=_env(os.environ),
        )
        if done.interrupted:
            raise KeyboardInterrupt
        if done.exit_code:
            raise HelmError(("helm", *words[:3]), done.exit_code, done.stderr)

    def kinds(self, release: Release) -> list[Any]:
        """The CRDs in a chart's folder ``crds``, which Helm creates once and never upgrades (Helm, "Custom
        Resource Definitions")."""
        return parsed(self._run("show", "crds", *self._chart(release), "--version", release.version))

    def workloads(self, release: Release) -> list[Ref]:
        """A release's objects that have pods."""
        text = self._run("get", "manifest", release.name, "--namespace", release.namespace)
        refs = [ref(each) for each in parsed(text)]
        return [replace(each, namespace=each.namespace or release.namespace) for each in refs]

    def go_back(self, release: Release, had: Installed | None) -> None:
        """Roll a release back to its previous revision; uninstall it if there is none."""
        self._back(release.name, release.namespace, first=had is None)

    def recover(self, there: Installed) -> None:
        """Reset a release that a killed Helm left pending; otherwise no other command could change it."""
        self._back(there.name, there.namespace, first=there.status == "pending-install")

    def _back(self, name: str, namespace: str, *, first: bool) -> None:
        self._run("uninstall" if first else "rollback", name, "--namespace", namespace, timeout=600)

    def uninstall(self, there: Installed) -> None:
        """Uninstall a release. Its volumes are kept, as Helm does not delete claims of StatefulSets."""
        self._run("uninstall", there.name, "--namespace", there.namespace, timeout=600)

    def _chart(self, release: Release) -> list[str]:
        if release.repository.startswith("oci://"):
            name = release.chart.rpartition("/")[2]
            end = release.repository.rstrip("/")
            return [end if end.endswith(f"/{name}") else f"{end}/{name}"]
        if release.repository.startswith(("https://", "http://")):
            return [release.chart, "--repo", release.repository]
        return [release.repository or release.chart]

    def _every(self) -> list[str]:
        # By default Helm 3 lists only deployed and failed releases; Helm 4 lists all.
        return [] if self.program.version >= (4, 0, 0) else ["--all"]

    def _ours(self, ours: bool) -> list[str]:
        return ["--selector", LABEL] if ours else []

    def _run(self, *words: str, timeout: float = 120) -> str:
        command = [self.program.path, *words, "--kubeconfig", str(self.access.kubeconfig)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=timeout,
                env=_env(os.environ), cwd=self.access.folder,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise DriveError(f"helm {words[0]}: not finished after {timeout:.0f} s") from None
        if done.returncode:
            raise HelmError(("helm", *words[:3]), done.returncode, done.stderr.strip())
        return done.stdout


def _env(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in {"KUBECONFIG", "HELM_NAMESPACE"}}


def strays(wanted: Sequence[Release], ours: Sequence[Installed]) -> list[Installed]:
    """Our releases that are no longer rendered."""
    names = {(each.name, each.namespace) for each in wanted}
    return [each for each in ours if (each.name, each.namespace) not in names]
