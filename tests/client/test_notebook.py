"""``causeway notebook`` in a cluster; with ``--on``, it is in ``test_run_on_machines``."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from client.jobset_world import World
from client.jupyter import JUPYTER, need_jupyter
from client.pods import can_run, wait
from client.process import Causeway

from causeway.cluster.labels import API
from causeway.commands import notebook
from causeway.job import Job

pytestmark = pytest.mark.skipif(bool(can_run()), reason=can_run())
_PATIENCE = 180


def test_jupyter_in_a_pod_wants_its_token_and_keeps_what_is_written(
    ada: Causeway, world: World, folder: Path
) -> None:
    """As it is submitted, with the packages that an image would have."""
    packages = need_jupyter()
    fields = notebook.fields({"gpus": 0}, "1h")
    env = {name.partition(".")[2]: value for name, value in fields.items() if name.startswith("env.")}
    # The stand-in has no volumes of the cluster: as where it has no homes.
    lab = {"HOME": "/causeway", "PYTHONPATH": str(packages), "JUPYTERLAB_DIR": f"{JUPYTER}/share/jupyter/lab"}
    job = {name: value for name, value in fields.items() if "." not in name}
    (folder / "job.yaml").write_text(yaml.safe_dump({**job, "env": {**env, **lab}}))
    name = ada("run", "job.yaml", "-d", "--json").json["run"]
    token = env["JUPYTER_TOKEN"]

    def asked(path: str, token: str, *more: str) -> tuple[int, Any]:
        """The status and the answer of Jupyter's API, from the network of pods."""
        url = f"http://127.0.0.1:{env['JUPYTER_PORT']}/api/{path}"
        curl = [
            "curl",
            "--silent",
            "--write-out",
            "\n%{http_code}",
            "--header",
            f"Authorization: token {token}",
        ]
        words = ["ip", "netns", "exec", world.pods._names, *curl, *more, url]
        answer, _, code = subprocess.run(words, capture_output=True, text=True).stdout.rpartition("\n")
        return int(code), json.loads(answer) if code.startswith("2") else None

    assert wait(lambda: (found := asked("contents", token))[0] and found, _PATIENCE)[0] == 200
    made = asked("contents", token, "--data", '{"type": "file", "ext": ".txt"}')
    assert made[0] == 201
    assert asked("status", "another")[0] == 403
    (row,) = [each for each in json.loads(ada("ps", "--json").out) if each["name"] == name]
    assert row["state"] == "running"
    assert notebook.of_run(name, Job.model_validate(row["job"])).token == token
    key = f"runs/user-ada/{name}/results/worker-0/{made[1]['path']}"
    assert wait(
        lambda: world.s3().list_objects_v2(Bucket=world.bucket, Prefix=key).get("Contents"), _PATIENCE
    )
    world.admin.call("DELETE", f"/apis/{API}/namespaces/user-ada/jobsets/{name}")


def test_an_image_without_jupyter_ends_the_run_and_says_so(ada: Causeway, folder: Path) -> None:
    begun = ada("notebook", "-d", "--gpus", "0")
    assert begun.code == 0, begun.err
    name = next(word for word in begun.err.split() if word.startswith("notebook-"))
    failed = wait(lambda: ada("why", name, "--json").json["first_failure"], _PATIENCE)
    assert failed["exit"] == 78
    assert ada("notebook", "--idle", "soon").code == 2
