"""The layout of ``build/<env>/``.

::

    build/research/
      terraform/ …            rendered; ours, file by file (manifest.json)
      manifest.json           path → SHA-256 of every rendered file
      state/                  what tools keep; never wiped, never rendered, mode 0700
        terraform.tfstate     with a local backend
        .terraform/           providers and modules (TF_DATA_DIR)
        plan/                 the saved plan
        applied/              the files as last applied
        outputs.json          what AWS decided then
        .lock
      .unprotected/           the root module without prevent_destroy, while a named destruction is planned
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


def private(folder: Path) -> Path:
    """Create the folder if needed, with mode 0700: state and plan files contain secrets, such as tunnel
    keys, and Terraform writes them world-readable."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of one environment."""

    build: Path

    @property
    def root(self) -> Path:
        """The root module."""
        return self.build / "terraform"

    @property
    def unprotected(self) -> Path:
        """The copy of the root module without prevent_destroy. It is beside the original, so that relative
        paths (of the state and the modules) are the same."""
        return self.build / ".unprotected"

    @property
    def state(self) -> Path:
        return self.build / "state"

    @property
    def data(self) -> Path:
        return self.state / ".terraform"

    @property
    def plan(self) -> Path:
        return self.state / "plan"

    @property
    def applied(self) -> Path:
        return self.state / "applied"

    @property
    def outputs(self) -> Path:
        return self.state / "outputs.json"

    @property
    def manifest(self) -> Path:
        return self.build / "manifest.json"

    @property
    def lock(self) -> Path:
        return self.state / ".lock"
