"""A run's record, and MLflow on a laptop: a real API server, JobSets, tokens, a real server and browser.

The sidecars of the stand-in's pods share this machine's network and their programs do not, so that what
programs log by MLflow's client is in ``test_tracking.py``. The server is in no pod here: the API server
refuses to forward its port, and ``ui`` goes straight to it, as over the VPN. The way by a pod is that of
``dashboards`` (``test_kubelets.py``).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.error import HTTPError

import pytest
from client.jobset_world import World, person
from client.mlflow_server import PYTHON, Mlflow, mlflow, needs_mlflow, parameters, tags
from client.pods import can_run, wait
from client.process import Causeway, program
from ports import reserved
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from causeway.tracking.forwarding import Forwarded

pytestmark = [pytest.mark.skipif(bool(can_run()), reason=can_run()), needs_mlflow]
_OFFER = "/api/v1/namespaces/causeway-system/configmaps/research"


class Guard(Forwarded):
    """In front of the server: it asks the cluster whose token it is, as MLflow's plug-in does. What that may
    do is tested where the server is rendered."""

    world: ClassVar[World]
    mlflow: ClassVar[Mlflow]
    seen: ClassVar[set[tuple[str, str]]] = set()
    """Who came, and for which workspace."""

    def do_any(self) -> None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        status = self.world.admin.call("POST", path, review)["status"]
        if not status.get("authenticated"):
            self.refuse("no token of this cluster", 401, "UNAUTHENTICATED")
            return
        self.seen.add((status["user"]["username"], self.headers["X-MLFLOW-WORKSPACE"]))
        connection = HTTPConnection(self.mlflow.address.removeprefix("http://"), timeout=60)
        self.pass_back(self.ask(connection, self.path, None, {}))
        connection.close()


@pytest.fixture(scope="module")
def server(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mlflow]:
    """Which the cluster offers while it runs."""
    with (
        mlflow(tmp_path_factory.mktemp("tracking") / "mlflow") as found,
        ThreadingHTTPServer(("127.0.0.1", 0), Guard) as guard,
    ):
        Guard.world, Guard.mlflow = world, found
        threading.Thread(target=guard.serve_forever, daemon=True).start()
        port = guard.server_address[1]
        with offered(world, {"url": f"http://127.0.0.1:{port}", "namespace": "mlflow", "service": "mlflow",
                             "port": 5000}):  # fmt: skip
            yield found
        guard.shutdown()


@contextmanager
def offered(world: World, tracking: Mapping[str, Any] | None) -> Iterator[None]:
    before = world.admin.call("GET", _OFFER)["data"]
    values = {**json.loads(before["cluster.json"]), "tracking": tracking}
    patch = "application/merge-patch+json"
    world.admin.call("PATCH", _OFFER, {"data": {"cluster.json": json.dumps(values)}}, patch)
    try:
        yield
    finally:
        world.admin.call("PATCH", _OFFER, {"data": before}, patch)


@pytest.fixture(scope="module")
def recorded(
    world: World, server: Mlflow, tmp_path_factory: pytest.TempPathFactory, command_of_client: list[str]
) -> dict[str, Any]:
    """A run that has ended, in MLflow."""
    folder = tmp_path_factory.mktemp("code")
    ada = person(world, "ada", folder, {"PATH": os.environ["PATH"], "HOME": str(folder)}, command_of_client)
    program(folder, "print('first')")
    commit(folder)
    program(
        folder,
        """
        import causeway, os, sys
        for step in range(3):
            causeway.report(step, loss=3.0 - step)
        names = ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID")
        print("given", *(os.environ[name] for name in names))
        sys.exit(4)
        """,
    )
    (folder / "job.yaml").write_text(
        "name: seen\nrun: python3 train.py --lr {lr}\ngpus: 1\nrestarts: 0\n"
        "tracking: {experiment: ablations}\n"
    )
    done = ada("run", "job.yaml", "--set", "lr=0.1", "--json")
    assert done.code == 1, done.err
    (line,) = [each for each in done.err.splitlines() if each.startswith("given")]

    def ended() -> Any:
        runs = server.runs("ablations")
        return runs and runs[0]["info"]["status"] == "FAILED" and runs

    (found,) = wait(ended)
    return {"run": found, "given": line.split()[1:], "code": done.json["code"]}


@pytest.fixture(scope="module")
def command_of_client() -> list[str]:
    return [sys.executable, "-m", "causeway"]


def commit(folder: Path) -> None:
    git = ["git", "-C", str(folder), "-c", "user.name=ada", "-c", "user.email=ada@lab.example"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)


def test_a_run_is_recorded_without_a_line_of_code(recorded: dict[str, Any], server: Mlflow) -> None:
    found, ours = recorded["run"], tags(recorded["run"])
    assert server.history(found["info"]["run_id"], "loss") == [(0, 3.0), (1, 2.0), (2, 1.0)]
    assert recorded["given"] == ["http://127.0.0.1:5757", "ablations", ours["causeway.id"]]
    given = {"job.restarts": "0", "set.lr": "0.1"}
    assert given.items() <= parameters(found).items()
    assert found["info"]["run_name"] == ours["causeway.run"] == "seen-1"
    assert (ours["causeway.person"], ours["causeway.namespace"]) == ("ada", "user-ada")
    assert (ours["causeway.exit"], ours["causeway.restarts"], ours["causeway.gpus"]) == ("4", "0", "1")
    assert ours["causeway.code"] == recorded["code"]
    assert "+import causeway" in ours["causeway.diff"]
    assert re.fullmatch("[0-9a-f]{40}", ours["mlflow.source.git.commit"])
    assert ours["mlflow.source.git.branch"] == "main"
    assert float(ours["causeway.hours"]) < 1
    assert ours["causeway.node"]
    assert ours["causeway.image"]
    assert ("system:serviceaccount:user-ada:work", "user-ada") in Guard.seen


def test_a_job_or_a_cluster_without_it_has_nothing_of_it(
    ada: Causeway, world: World, server: Mlflow, folder: Path
) -> None:
    program(folder, "")
    words = ["run", "--dry-run", "--name", "off"]
    plain = ada(*words, "--", "python3", "train.py").out
    off = ada(*words, "--set", "tracking=false", "--", "python3", "train.py").out
    own = ada(*words, "--env", "MLFLOW_TRACKING_URI=http://mine", "--", "python3", "train.py").out
    with offered(world, None):
        without = ada(*words, "--", "python3", "train.py").out
        refused = ada("ui", "--no-browser")
    assert "MLFLOW_RUN_ID" in plain
    assert "MLFLOW" not in off
    assert "MLFLOW" not in without
    # What is known of the run is recorded still; its program has an MLflow of its own.
    assert own.count("MLFLOW_RUN_ID") == own.count("CAUSEWAY_TRACKING_TOKEN") == 1
    assert (refused.code, "MLflow" in refused.err) == (1, True), refused


@contextmanager
def shown(
    world: World, command: list[str], environment: Mapping[str, str], *words: str
) -> Iterator[tuple[str, str]]:
    """``causeway ui`` while it runs: the address that it says, and where it listens."""
    with reserved(1) as (port,):
        process = subprocess.Popen(
            [*command, "ui", *words, "--no-browser", "--port", str(port)],
            env={**environment, **world.environment("ada")}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with process:
            assert process.stdout is not None
            try:
                said = process.stdout.readline()
                yield said.split()[0], f"http://localhost:{port}"
            finally:
                process.send_signal(signal.SIGINT)
                assert process.wait(60) == 0


def test_ui_shows_the_run_in_a_browser_and_other_sites_get_nothing(
    recorded: dict[str, Any], world: World, command: list[str], environment: Mapping[str, str], tmp_path: Path
) -> None:
    with shown(world, command, environment, "seen-1") as (address, origin):
        for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            with pytest.raises(HTTPError) as raised:
                urllib.request.urlopen(urllib.request.Request(origin, headers=headers), timeout=60)
            assert raised.value.code == 403
        binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
        driver = shutil.which("chromedriver")
        if binary is None or driver is None:
            pytest.skip("needs Chromium and its driver; `tests/packages.sh` installs them")
        options = webdriver.ChromeOptions()
        options.binary_location = binary
        for argument in ("--headless=new", "--disable-dev-shm-usage", "--disable-gpu", "--no-sandbox",
                         "--window-size=1440,900"):  # fmt: skip
            options.add_argument(argument)
        browser = webdriver.Chrome(options=options, service=Service(driver))
        try:
            browser.get(address)
            text = "return document.body.innerText"
            WebDriverWait(browser, 240).until(
                lambda shown: "set.lr" in shown.execute_script(text) and "loss" in shown.execute_script(text)
            )
            assert "seen-1" in browser.execute_script(text)
            browser.save_screenshot(str(tmp_path / "run.png"))
        finally:
            browser.quit()


def test_a_notebook_has_what_env_prints(
    recorded: dict[str, Any], ada: Causeway, world: World, folder: Path, home: Path
) -> None:
    printed = ada("env")
    assert printed.code == 0, printed.err
    script = (
        f'eval "$(cat env)"; exec {PYTHON} -c "import mlflow; '
        "print(mlflow.search_runs(experiment_names=['ablations'])['tags.causeway.run'].tolist())\""
    )
    (folder / "env").write_text(printed.out)
    done = subprocess.run(
        ["sh", "-c", script], cwd=folder, env={"PATH": os.environ["PATH"], "HOME": str(home)},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["['seen-1']"], done.stderr
    nothing = ada("ui", "seen-7", "--no-browser")
    assert (nothing.code, "run seen-7" in nothing.err) == (1, True), nothing


def test_ui_without_a_server_says_so(ada: Causeway, world: World, server: Mlflow) -> None:
    gone = {"url": "http://127.0.0.1:9", "namespace": "mlflow", "service": "mlflow", "port": 5000}
    with offered(world, gone):
        said = ada("ui", "--no-browser")
    assert (said.code, 'services "mlflow"' in said.err) == (1, True), said
