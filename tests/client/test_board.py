"""Runs of a cluster as they are looked at: real TensorBoard in the namespace's board, ``show``, ``compare``,
and ``rerun --exact``."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import pytest
import yaml
from browsing import chromium
from client.jobset_world import World, person
from client.pods import can_run, wait
from client.process import Causeway, program
from ports import reserved
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = pytest.mark.skipif(bool(can_run()), reason=can_run())

_TRAIN = """
    import os, random, sys, time
    import causeway
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    random.seed(int(os.environ["CAUSEWAY_SEED"]))
    writer = EventFileWriter(os.environ["CAUSEWAY_LOGS"] + "/train")
    for step in range(100):
        loss = 1 / (1 + step * float(sys.argv[1])) + random.random() / 50
        causeway.report(step, loss=loss)
        value = Summary.Value(tag="loss", simple_value=loss)
        writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))
        if step == 49:
            writer.flush()
            time.sleep(float(sys.argv[2]))
    writer.close()
"""
"""It writes the event files that torch.utils.tensorboard writes, by the same class."""
_PORT = 6006
_PATIENCE = 180


def train(folder: Path, name: str, *words: str) -> tuple[str, ...]:
    program(folder, _TRAIN)
    made = {
        "name": name,
        "run": f"{sys.executable} train.py {{rate}} {{pause}}",
        "gpus": 0,
        "launcher": "none",
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(made))
    return ("run", "job.yaml", "--json", *words)


def get(path: str, port: int = _PORT) -> Any:
    opener = build_opener(ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return json.loads(answer.read())


def runs_of(path: str, port: int = _PORT) -> set[str]:
    """What a board shows, once it answers."""
    try:
        return {*get(f"{path}data/runs", port)}
    except OSError:
        return set()


def test_runs_of_all_sites_are_on_one_board_of_their_namespace(
    ada: Causeway,
    world: World,
    folder: Path,
    environment: Mapping[str, str],
    command: list[str],
    tmp_path: Path,
) -> None:
    done = ada(*train(folder, "curve"), "--set", "rate=0.1", "--set", "pause=0")
    assert done.code == 0, done.err
    slow = ada(*train(folder, "curve"), "-d", "--set", "rate=0.5", "--set", "pause=40").json["run"]
    assert (done.json["name"], slow) == ("curve-1", "curve-2")

    shown = ada("show", "curve-1", "--json").json
    assert (shown["parameters"], shown["state"]) == ({"rate": "0.1", "pause": "0"}, "done")
    assert len(shown["metrics"]["loss"]["points"]) == 100
    assert "@sha256:" in shown["digest"]
    assert "curve-1 done" in (screen := ada("show", "curve-1").out)
    assert "rate=0.1" in screen

    (row,) = json.loads(ada("export", "curve-1", "--json").out)
    assert (row["state"], row["person"], row["parameters"]) == ("done", "ada", {"rate": "0.1", "pause": "0"})
    assert (row["image"], row["code"]) == (shown["digest"], shown["code"])
    assert row["metrics"]["loss"] == shown["metrics"]["loss"]["last"]

    opened = ada("board", "curve-1", "curve-2", "--detach", "--json").json
    host, path = opened["url"].removeprefix("http://").split("/", 1)
    assert host == f"board.user-ada.svc:{_PORT}"
    wanted = {"curve-1/train", "curve-1/causeway.report", "curve-2/train"}
    wait(lambda: wanted <= runs_of(f"/{path}"), _PATIENCE)
    points = get(f"/{path}data/plugin/scalars/scalars?run=curve-1/train&tag=loss")
    assert [[step, value] for _, step, value in points] == [
        [step, pytest.approx(value)] for step, value in shown["metrics"]["loss"]["points"]
    ]
    tags = get(f"/{path}data/plugin/scalars/tags")
    assert tags["curve-1/causeway.report"].keys() == tags["curve-1/train"].keys() == {"loss"}

    # Of a run that goes on it shows what comes.
    query = f"/{path}data/plugin/scalars/scalars?run=curve-2/train&tag=loss"
    assert 50 <= len(get(query)) <= 100
    wait(lambda: len(get(query)) == 100, _PATIENCE)
    seen_by_a_browser(f"http://127.0.0.1:{_PORT}/{path}", tmp_path)

    # Without the path there is nothing, and only members of the namespace may read it.
    for other in ("/", "/data/runs", f"/{path[:-2]}x/data/runs"):
        with pytest.raises(HTTPError, match="404"):
            get(other)
    kubeconfig = yaml.safe_load(world.kubeconfigs["alan"].read_text())
    kubeconfig["contexts"][0]["context"]["namespace"] = "user-ada"
    (tmp_path / "alan.yaml").write_text(yaml.safe_dump(kubeconfig))
    alan = person(world, "alan", folder, environment, command)
    for words in (("board", "curve-1"), ("board", "--stop"), ("show", "curve-1")):
        refused = alan(*words, KUBECONFIG=str(tmp_path / "alan.yaml"))
        assert (refused.code, "cannot" in refused.err, path in refused.err) == (1, True, False), refused.err

    # In the VPN it is known by its name; the same runs open the same board.
    (tmp_path / "hosts").write_text("127.0.0.1 localhost board.user-ada.svc\n")
    among_names = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"']
    in_vpn = person(world, "ada", folder, environment, [*among_names, str(tmp_path / "hosts"), *command])
    same = in_vpn("board", "curve-1", "curve-2")
    assert (same.code, opened["url"] in same.out) == (0, True), same.err

    # Other runs are another board, in its place.
    other = ada("board", "curve-2", "--detach", "--json").json["url"].split("/", 3)[3]
    assert other != path
    wait(lambda: runs_of(f"/{other}") == {"curve-2/train", "curve-2/causeway.report"}, _PATIENCE)
    assert runs_of(f"/{path}") == set()
    assert ada("board", "--stop", "--json").json["changed"]
    assert not ada("board", "--stop", "--json").json["changed"]
    path_of_services = "/api/v1/namespaces/user-ada/services"
    names = {each["metadata"]["name"] for each in world.admin.call("GET", path_of_services)["items"]}
    assert "board" not in names

    # On this machine, over a copy.
    env = {**environment, **world.environment("ada")}
    with (
        reserved(1) as (port,),
        subprocess.Popen([*command, "board", "--here", "curve-2", "--port", str(port)], env=env) as process,
    ):
        try:
            here = {"curve-2/train", "curve-2/causeway.report"}
            wait(lambda: runs_of("/", port) == here, _PATIENCE)
            process.send_signal(signal.SIGINT)
            assert process.wait(_PATIENCE) == 0
        finally:
            process.terminate()  # and with it TensorBoard
    watched([*command, "ps", "--watch"], env, "curve-2")

    again = ada("rerun", "curve-1", "--exact", "--detach", "--json")
    assert again.code == 0, again.err
    assert not any(line.startswith(("image", "seed")) for line in again.json["differs"]), again.json
    name = again.json["run"]
    wait(lambda: yaml.safe_load(ada("why", name, "--json").out)["state"] == "done", _PATIENCE)
    found = world.admin.call("GET", f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/user-ada/jobsets/{name}")
    pod = found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == shown["digest"]
    compared = ada("compare", "curve-1", name, "--json").json
    assert (compared["differences"], compared["code"][0]["files"]) == ({}, [])
    assert compared["metrics"]["curve-1"] == compared["metrics"][name], "the seed is the same"
    differs = ada("compare", "curve-1", "curve-2", "--json").json["differences"]
    assert differs["--set rate"] == {"curve-1": "0.1", "curve-2": "0.5"}


def watched(command: list[str], environment: Mapping[str, str], words: str) -> None:
    """A list at a terminal is drawn again and again, until Ctrl-C."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, env=environment, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        try:
            while seen.count(words.encode()) < 3:
                seen += os.read(ours, 1 << 16)
            process.send_signal(signal.SIGINT)
            assert process.wait(_PATIENCE) == 0
        finally:
            process.kill()
            os.close(ours)


def seen_by_a_browser(address: str, folder: Path) -> None:
    """The page draws the curve: beside it stands the last value of each run."""
    with chromium() as browser:
        browser.get(f"{address}#timeseries")

        def shown(_: object) -> bool:
            cards = browser.find_elements(By.CSS_SELECTOR, "scalar-card")
            return any({"curve-1/train", "99"} <= {*card.text.split()} for card in cards)

        WebDriverWait(browser, _PATIENCE).until(shown)
        runs = browser.find_element(By.CSS_SELECTOR, "runs-data-table").text
        assert "curve-2/train" in runs
        browser.save_screenshot(str(folder / "board.png"))
