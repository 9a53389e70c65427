"""MLflow as it is rendered: the real server with the real plugins on a real PostgreSQL, with rights that a
real API server judges. Commands, variables and scripts are read from the objects that it took."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from golden_folders import GOLDEN, LOCK, SPEC
from kube.api import Api
from kube.plane import Plane, planes
from ports import reserved
from stores import local_store
from strategies.outputs import outputs_for
from waiting import until

from infra.commands.cluster.tracking import bring_access
from infra.drive import localaws
from infra.drive.kubernetes import secrets
from infra.drive.secrets import database_password
from infra.load import load
from infra.model import Cluster
from infra.render.kubernetes import objects, research
from infra.resolve import lockfile
from infra.resolve.cluster import resolve

VENV = Path(__file__).parents[3] / ".venv-mlflow"


def rendered() -> Cluster:
    """The cluster `research` with its database in a pod."""
    folder = GOLDEN / "research"
    spec = load(folder / SPEC).spec
    assert spec.kubernetes.tracking is not None
    own = spec.kubernetes.tracking.model_copy(update={"database": "pod"})
    spec = spec.model_copy(update={"kubernetes": spec.kubernetes.model_copy(update={"tracking": own})})
    return resolve(spec, lockfile.parse((folder / LOCK).read_text(), LOCK), "research")[0]


@dataclass
class Tracking:
    """MLflow, and who comes to it."""

    cluster: Cluster
    plane: Plane
    address: str
    environment: Mapping[str, str]
    """Of the server and the nightly job."""
    scripts: Path

    def token(self, person: Api, namespace: str) -> str:
        """A token of the namespace's account ``work``, as a pod has one and as a person may make one; of the
        audience that the API server takes. RefusedError."""
        return person.token(namespace, research.WORK, expirationSeconds=3600)

    def call(
        self,
        token: str | None,
        workspace: str | None,
        path: str,
        body: object = None,
        *,
        method: str = "",
        host: str = "mlflow.mlflow.svc:5000",
    ) -> tuple[int, Any]:
        """The status and the answer. ``path`` below ``/api/2.0/``, or with another version, or from the root;
        bytes are sent as they are."""
        headers = {"Content-Type": "application/json", "Host": host}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        headers |= {"X-MLFLOW-WORKSPACE": workspace} if workspace else {}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if not path.startswith("/"):
            path = f"/api/{path}" if path.startswith("3.0/") else f"/api/2.0/{path}"
        request = urllib.request.Request(
            f"{self.address}{path}", data, headers, method=method or ("POST" if data else "GET")
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as answer:
                said = answer.read()
                return answer.status, json.loads(said) if said[:1] in (b"{", b"[") else said
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()

    def run(self, token: str, workspace: str) -> str:
        """A new run in a new experiment of the workspace."""
        code, made = self.call(token, workspace, "mlflow/experiments/create", {"name": f"e-{time.time_ns()}"})
        assert code == 200, made
        experiment = made["experiment_id"]
        code, made = self.call(
            token, workspace, "mlflow/runs/create", {"experiment_id": experiment, "start_time": now()}
        )
        assert code == 200, made
        return str(made["run"]["info"]["run_id"])

    def history(self, token: str, workspace: str, run: str, key: str) -> tuple[int, Any]:
        return self.call(
            token, workspace, f"mlflow/metrics/get-history?run_id={run}&metric_key={key}&max_results=25000"
        )

    def script(self, name: str, **more: str) -> subprocess.CompletedProcess[str]:
        words = [str(VENV / "bin/python"), str(self.scripts / name)]
        return subprocess.run(
            words, env={**self.environment, **more}, capture_output=True, text=True, check=False, timeout=180
        )


def now() -> int:
    return int(time.time() * 1000)


@contextmanager
def tracked(folder: Path) -> Iterator[Tracking]:
    """MLflow with all that it needs, in a folder that is there. Skips where a program is missing."""
    if not (VENV / "bin/mlflow").exists():
        pytest.skip("no .venv-mlflow: 'make setup-kubernetes' makes it")
    cluster = rendered()
    store = local_store(folder)
    with planes(folder / "api", secrets.made(store, datetime.now(UTC))) as plane, ExitStack() as stack:
        for part in ("namespaces", "access", "research", "tracking"):
            plane.admin.apply_all(objects(part, cluster, outputs_for(cluster)))
        assert [bring_access(plane.driven, store, None) for _ in range(2)] == ["created", "unchanged"]
        aws = localaws.start(folder / "aws", "tracking")
        stack.callback(localaws.stop, aws.folder)
        assert cluster.storage.work is not None
        keys_of_aws = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
        s3 = boto3.client("s3", region_name="us-east-1", endpoint_url=aws.address, **keys_of_aws)
        s3.create_bucket(Bucket=cluster.storage.work.bucket)
        yield stack.enter_context(served(cluster, plane, aws, folder, database_password(store)))


@contextmanager
def served(
    cluster: Cluster, plane: Plane, aws: localaws.Server, folder: Path, password: str
) -> Iterator[Tracking]:
    """MLflow on a control plane that has all its objects, in a folder that is there."""
    with ExitStack() as stack:
        port, database = stack.enter_context(reserved(2))
        stack.enter_context(postgres(folder / "postgres", database, password))
        way = plane.kubeconfig_with("mlflow", token=plane.admin.token("mlflow", "mlflow"))
        # The certificate is for another name than the address, and the plugin drops `tls-server-name`.
        config = yaml.safe_load(way.read_text())
        at = {"server": f"https://{plane.address}", "insecure-skip-tls-verify": True}
        config["clusters"][0]["cluster"] = at
        way.write_text(yaml.safe_dump(config))
        environment = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "HOME": str(folder),
            "KUBECONFIG": str(way),
            "AWS_ENDPOINT_URL": aws.address,
            **variables(plane.admin, "Deployment", database),
        }
        # The role, and the token for it, are held against AWS in test_web_identity.
        for name in ("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_SESSION_NAME"):
            environment.pop(name, None)
        environment |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
        scripts = mounted_scripts(plane.admin, folder)
        environment["PYTHONPATH"] = environment["PYTHONPATH"].replace("/scripts", str(scripts))
        here = Tracking(cluster, plane, f"http://127.0.0.1:{port}", environment, scripts)
        migrate(here)
        stack.enter_context(serving(here, folder / "mlflow.log", port))
        yield here


def mounted_scripts(admin: Api, folder: Path) -> Path:
    """A folder below with the ConfigMap ``scripts``, as the server's volume has it."""
    data = found(admin, "v1", "configmaps", "scripts")["data"]
    volumes = pod_of(admin, "Deployment")["volumes"]
    (volume,) = (each["configMap"] for each in volumes if each["name"] == "scripts")
    for item in volume["items"]:
        path = folder / "scripts" / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data[item["key"]])
    return folder / "scripts"


def found(admin: Api, version: str, plural: str, name: str) -> Any:
    """An object of the namespace ``mlflow``."""
    root = "/api/v1" if version == "v1" else f"/apis/{version}"
    return admin.call("GET", f"{root}/namespaces/mlflow/{plural}/{name}")


def pod_of(admin: Api, kind: str) -> Any:
    if kind == "Deployment":
        return found(admin, "apps/v1", "deployments", "mlflow")["spec"]["template"]["spec"]
    return found(admin, "batch/v1", "cronjobs", "thin")["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def variables(admin: Api, kind: str, database: int) -> dict[str, str]:
    """The variables of its container, as the kubelet would make them. The database is elsewhere here."""
    values = {}
    for each in pod_of(admin, kind)["containers"][0]["env"]:
        if "value" in each:
            text = each["value"]
        elif reference := each["valueFrom"].get("secretKeyRef"):
            secret = found(admin, "v1", "secrets", reference["name"])["data"]
            text = base64.b64decode(secret[reference["key"]]).decode()
        else:
            text = "mlflow-0"
        values[each["name"]] = text.replace("database.mlflow.svc:5432", f"127.0.0.1:{database}")
    return values


@contextmanager
def postgres(folder: Path, port: int, password: str) -> Iterator[None]:
    """A real one, with the user and the database that the image makes of the rendered variables."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs and shutil.which("initdb") is None:
        pytest.skip("no PostgreSQL: 'tests/packages.sh' installs it")
    # Another pytest that begins closes the folders of this one to other users, and the server stops then.
    with tempfile.TemporaryDirectory(prefix="causeway-postgres-", ignore_cleanup_errors=True) as own:
        folder.symlink_to(own)
        with _postgres(Path(own), programs, port, password):
            yield


@contextmanager
def _postgres(folder: Path, programs: Sequence[Path], port: int, password: str) -> Iterator[None]:
    # It refuses to run as root.
    who = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
    if who:
        shutil.chown(folder, "postgres", "postgres")

    def program(name: str) -> str:
        return str(programs[-1] / name) if programs else name

    secret = folder / "password"
    secret.write_text(password)
    secret.chmod(0o644)
    data = folder / "data"
    words = [*who, program("initdb"), f"--pgdata={data}", "--username=mlflow", f"--pwfile={secret}",
             "--auth=scram-sha-256", "--no-sync", "--locale=C.UTF-8"]  # fmt: skip
    subprocess.run(words, check=True, capture_output=True, cwd=folder)
    words = [*who, program("postgres"), "-D", str(data), "-p", str(port), "-h", "127.0.0.1",
             "-k", str(folder), "-c", "fsync=off"]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=folder)
    try:
        environment = {**os.environ, "PGPASSWORD": password}
        create = [program("createdb"), "-h", "127.0.0.1", "-p", str(port), "-U", "mlflow", "mlflow"]

        def made() -> bool:
            return not subprocess.run(create, env=environment, check=False, capture_output=True).returncode

        until(made)
        yield
    finally:
        process.terminate()
        process.wait()


def migrate(here: Tracking) -> None:
    """Two servers at once, as two replicas begin."""
    words = [str(VENV / "bin/python"), str(here.scripts / "migrate.py")]
    assert pod_of(here.plane.admin, "Deployment")["initContainers"][0]["command"][1] == "/scripts/migrate.py"
    pair = [
        subprocess.Popen(
            words, env=here.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(2)
    ]
    said = [each.communicate(timeout=300)[0] for each in pair]
    assert [each.returncode for each in pair] == [0, 0], "\n".join(said)


@contextmanager
def serving(here: Tracking, log: Path, port: int) -> Iterator[None]:
    container = pod_of(here.plane.admin, "Deployment")["containers"][0]
    words = [*container["command"], *container["args"]]
    changed = {
        "--host=0.0.0.0": "--host=127.0.0.1",
        "--port=5000": f"--port={port}",
        "--workers=2": "--workers=1",
    }
    assert {*changed} <= {*words}
    words = [str(VENV / "bin" / words[0]), *(changed.get(word, word) for word in words[1:])]
    path = f"{VENV / 'bin'}:{here.environment['PATH']}"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            words,
            env={**here.environment, "PATH": path},
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    try:
        health = container["readinessProbe"]["httpGet"]["path"]
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

        def healthy() -> bool:
            assert process.poll() is None, log.read_text()[-3000:]
            try:
                with opener.open(f"{here.address}{health}", timeout=5):
                    return True
            except OSError:
                return False

        until(healthy)
        yield
    finally:
        os.killpg(process.pid, 15)
        process.wait()
