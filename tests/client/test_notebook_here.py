"""``causeway notebook --local``: real JupyterLab on this machine."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from client.jupyter import asked, notebook, python_with_jupyter
from client.process import Causeway
from waiting import until

_LOOKS = """
from jupyter_server.serverapp import ServerApp
from tornado.ioloop import PeriodicCallback

def look(app):
    if app.shutdown_no_activity_timeout > 0:
        PeriodicCallback(app.shutdown_no_activity, 500).start()

ServerApp.init_shutdown_no_activity = look
"""
"""Jupyter looks once a minute whether it is idle, whatever its configuration says."""


@contextmanager
def used(run: Path) -> Iterator[None]:
    """Somebody lists files all the time: it is not idle."""
    env = json.loads((run / "run.json").read_text())["job"]["env"]
    over = threading.Event()

    def use() -> None:
        while not over.wait(0.5):
            asked(f"http://127.0.0.1:{env['JUPYTER_PORT']}", "contents", env["JUPYTER_TOKEN"])

    user = threading.Thread(target=use)
    user.start()
    try:
        yield
    finally:
        over.set()
        user.join()


def test_it_wants_its_token_goes_on_without_its_terminal_and_ends_when_idle(
    causeway: Causeway, folder: Path, home: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    own = python_with_jupyter(tmp_path / "bin").parent
    mine = {**environment, "PATH": f"{own}{os.pathsep}{environment['PATH']}"}
    (home / ".jupyter").mkdir()
    (home / ".jupyter/jupyter_server_config.py").write_text(_LOOKS)
    (home / "mine.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    (folder / "model.py").write_text("")
    with ExitStack() as using:
        with notebook(folder, mine, "--local", "--gpus", "0", "--idle", "8s") as (url, process):
            using.enter_context(used(home / ".local/share/causeway/runs/notebook-1"))
            token = urlsplit(url).query.partition("token=")[2]
            assert "mine.ipynb" in [each["name"] for each in asked(url, "contents", token)[1]["content"]]
            assert asked(url, "contents", "another")[0] == 403
            assert asked(url, "kernels", token, b"{}")[0] == 201
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        assert causeway("why", "--local", "notebook-1", "--json").json["state"] == "running"
        with notebook(folder, mine, "notebook-1") as (again, process):  # there is no kubeconfig
            assert urlsplit(again).query == urlsplit(url).query
            using.close()
            # Its kernel does nothing, and then nobody has one.
            assert process.wait(240) == 0
    assert causeway("why", "--local", "notebook-1", "--json").json["state"] == "done"
    late = causeway("notebook", "--local", "notebook-1", "--no-browser")
    assert (late.code, "notebook-1 done" in late.err) == (1, True)


def test_a_stopped_one_ends_and_one_without_jupyter_says_so(
    causeway: Causeway, folder: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    own = python_with_jupyter(tmp_path / "bin").parent
    mine = {**environment, "PATH": f"{own}{os.pathsep}{environment['PATH']}"}
    with notebook(folder, mine, "--local", "--gpus", "0") as (_, process):
        assert causeway("stop", "--local", "notebook-1").code == 0
        assert process.wait(60) == 0
    # Of this one neither the terminal nor the page is waited for.
    begun = causeway("notebook", "--local", "--gpus", "0", "-d")
    assert begun.code == 0, begun.err
    found = until(
        lambda: causeway("why", "--local", "notebook-2", "--json").json,
        lambda each: each["state"] != "running",
    )
    assert (found["state"], found["first_failure"]["exit"]) == ("failed", 78)
    assert causeway("notebook", "--local", "--on", "titan-01").code == 2
    assert causeway("notebook", "--local", "--group", "vision").code == 2
    assert causeway("notebook", "--local", "--idle", "soon").code == 2
    assert causeway("notebook", "--local", "notebook-9").code == 1
