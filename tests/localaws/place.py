"""A root module on a cloud of its own, and real Terraform to run it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from infra.drive import localaws
from infra.drive.engine import Engine, find_engine
from infra.drive.localaws import Server
from infra.drive.terraform import SILENT

VERSIONS = """\
terraform {
  required_version = ">= 1.6"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.100"
    }
  }
}
"""


@dataclass(frozen=True)
class Run:
    """One command of Terraform's and how it ended."""

    code: int
    text: str

    def __str__(self) -> str:
        return f"exit code {self.code}\n{self.text}"


@dataclass(frozen=True)
class Place:
    """A root module, with a cloud of its own."""

    folder: Path
    server: Server
    data: Path
    """Terraform's data, with the provider, shared."""
    more: Mapping[str, str] = field(default_factory=dict)

    def terraform(self, *arguments: str) -> Run:
        env = {**localaws.environment(self.server, "us-west-2"), **self.more}
        return run(self.folder, self.data, *arguments, env=env)

    def apply(self) -> Run:
        return self.terraform("apply", "-auto-approve", "-parallelism=20")

    def plan(self) -> Run:
        return self.terraform("plan", "-detailed-exitcode")

    def destroy(self) -> Run:
        return self.terraform("destroy", "-auto-approve", "-parallelism=20")


@cache
def engine() -> Engine:
    return find_engine()


def run(folder: Path, data: Path, *arguments: str, env: Mapping[str, str]) -> Run:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TF_"))}
    config = os.environ.get("TF_CLI_CONFIG_FILE", "")
    if Path(config).is_file():
        clean["TF_CLI_CONFIG_FILE"] = config
    clean |= {**SILENT, "TF_DATA_DIR": str(data), "TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1", **env}
    verb, *options = arguments
    done = subprocess.run(
        [*engine().argv, verb, "-no-color", *(["-input=false"] if verb != "output" else []), *options],
        cwd=folder,
        env=clean,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    return Run(done.returncode, done.stdout)
