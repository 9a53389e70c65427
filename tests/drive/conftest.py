"""A tiny environment that needs no provider: ``terraform_data`` is built into Terraform."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from embedded_aws import embedded
from golden_folders import assert_text
from settings import forget_settings

from infra.drive import workspace
from infra.drive.aws import Aws
from infra.drive.engine import Engine, find_engine
from infra.drive.lifecycle import Job
from infra.drive.localaws import Server
from infra.drive.secrets import Store, open_store
from infra.model.cluster import Secrets

MESSAGES = Path(__file__).parents[1] / "messages"

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
    forget_settings(monkeypatch)


@dataclass(frozen=True)
class Messages:
    """What people read, whole: a file of ``tests/messages`` a family, which ``--update-golden`` rewrites."""

    folder: Path
    """A path that is not the same in each run, and so not in the files."""
    rewrite: bool

    def compare(self, family: str, text: str) -> None:
        stable = re.sub(r"(?<![-:])\b[0-9a-fA-F]{12,}\b", "<hex>", text.replace(str(self.folder), ""))
        assert_text(MESSAGES / f"{family}.txt", stable, rewrite=self.rewrite)

    def refusals(
        self, family: str, error: type[Exception], cases: Mapping[str, Callable[[], object]]
    ) -> None:
        """Each case raises the error; a paragraph each."""
        text = ""
        for name, case in cases.items():
            with pytest.raises(error) as caught:
                case()
            text += f"{name}: {caught.value}\n"
        self.compare(family, text)


@pytest.fixture
def messages(request: pytest.FixtureRequest, tmp_path: Path) -> Messages:
    return Messages(tmp_path, request.config.getoption("--update-golden"))


@pytest.fixture(scope="module")
def moto_env() -> Iterator[dict[str, str]]:
    """The settings of programs that shall ask moto, over HTTP."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    server.stop()


@pytest.fixture
def aws_env(moto_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The same, without the developer's own configuration of AWS."""
    files = dict.fromkeys(["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"], str(tmp_path / "config"))
    return moto_env | files


@pytest.fixture(params=["local", "ssm"])
def secrets_opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens the same store again, as the next command would: the encrypted file, or Parameter Store."""
    if request.param == "ssm":
        secrets = Secrets("ssm", f"/causeway/{tmp_path.name}", "us-west-2")
        env = request.getfixturevalue("aws_env")
    else:
        secrets, env = Secrets("local", "", ""), {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    return lambda: open_store(secrets, "lab", tmp_path / ".secrets", env)


@pytest.fixture
def state_bucket(moto_env: dict[str, str], tmp_path: Path) -> str:
    """A bucket of moto's with versions; moto's memory outlives its server."""
    name = f"states-{zlib.crc32(str(tmp_path).encode())}"
    s3 = Aws(moto_env).client("s3", "us-west-2")
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    return name


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An embedded AWS for a module's tests."""
    with embedded(tmp_path_factory.mktemp("cloud") / "aws", "lab") as server:
        yield server


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
