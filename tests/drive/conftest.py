"""A tiny environment that needs no provider: ``terraform_data`` is built into Terraform."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.drive import workspace
from infra.drive.engine import Engine, find_engine
from infra.drive.lifecycle import Job

ROOT = """\
terraform {
  required_version = ">= 1.6"
  backend "local" {
    path = "../state/terraform.tfstate"
  }
}

module "us_west_2" {
  source = "./modules/site"
  text   = "TEXT"
  kept   = "KEPT"
}

output "text" {
  value = module.us_west_2.text
}
"""

MODULE = """\
variable "text" {
  type = string
}

variable "kept" {
  type = string
}

resource "terraform_data" "thing" {
  for_each = toset(["a.b", "c"])
  input    = var.text
}

resource "terraform_data" "kept" {
  triggers_replace = var.kept
  lifecycle {
    prevent_destroy = true
  }
}

output "text" {
  value = var.text
}
"""


@pytest.fixture(autouse=True)
def no_settings_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TF_", "CAUSEWAY_", "AWS_")) and name != "TF_CLI_CONFIG_FILE":
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def engine() -> Engine:
    return find_engine()


@pytest.fixture
def make_job(tmp_path: Path, engine: Engine) -> Callable[..., Job]:
    """A job whose files are written; ``text`` changes in place, ``kept`` replaces what is guarded,
    ``more`` is added to the module."""

    def make(*, text: str = "one", kept: str = "first", more: str = "", spec: str = "spec") -> Job:
        files = {
            "terraform/main.tf": ROOT.replace("TEXT", text).replace("KEPT", kept),
            "terraform/modules/site/main.tf": MODULE + more,
        }
        build = tmp_path / "build" / "lab"
        workspace.write(build, files)
        return Job(
            environment="lab",
            build=build,
            engine=engine,
            files=files,
            spec=spec,
            lock="",
            sites={"us_west_2": "us-west-2"},
            regions={"us-west-2": "us-west-2"},
        )

    return make
