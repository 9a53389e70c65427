"""The program of a board: it follows runs, and ends when nobody looks."""

from __future__ import annotations

import itertools
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest
from client.pods import wait
from client.process import Causeway, program
from ports import reserved

from causeway import board
from causeway.board import Reported, accepted, serve


class Counting:
    """Nothing to follow; the store does not answer."""

    def __init__(self) -> None:
        self.asked = 0

    def follow(self) -> None:
        self.asked += 1
        raise OSError("away")


def test_a_board_goes_on_while_it_is_asked_and_ends_when_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is away does not end it."""
    monkeypatch.setattr(board, "EVERY", 0.0)
    follower, ended, asks = Counting(), threading.Event(), threading.Event()
    asks.set()
    requests, codes = itertools.count(1), []

    seen = [0]

    def count() -> int:
        seen[0] = next(requests) if asks.is_set() else seen[0]
        return seen[0]

    def run() -> None:
        codes.append(serve([follower], ["sleep", "600"], threading.Event(), idle=2.5, count=count))
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    # Twice as many looks as would end it.
    wait(lambda: follower.asked > 6)
    assert not ended.is_set()
    asks.clear()
    assert ended.wait(60)
    assert codes == [0]


def test_a_request_is_counted_whichever_end_closes_its_connection() -> None:
    before = accepted()
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
        server.accept()[0].close()
    assert accepted() > before


def test_a_tensorboard_that_ends_by_itself_ends_the_board() -> None:
    words = [sys.executable, "-c", "raise SystemExit(3)"]
    assert serve([], words, threading.Event()) == 3


def test_what_was_reported_becomes_events_once_and_lines_that_are_being_written_wait(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    reported = Reported(source, tmp_path / "events")
    lines = [
        json.dumps({"step": step, "at": 1.0 + step, "metrics": {"loss": 1 / (step + 1)}}) for step in range(5)
    ]
    whole = "\n".join(lines[:3]) + "\n"
    (source / "metrics").write_text(f"{whole}not json\n{lines[3][:10]}")
    reported.follow()
    reported.follow()
    (source / "metrics").write_text(f"{whole}not json\n" + "\n".join(lines[3:]) + "\n")
    reported.follow()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(tmp_path / "events"))
    accumulator.Reload()
    assert [(each.step, each.wall_time) for each in accumulator.Scalars("loss")] == [
        (step, 1.0 + step) for step in range(5)
    ]


def test_runs_of_this_machine_are_on_a_board_of_this_machine(
    causeway: Causeway, folder: Path, environment: Mapping[str, str], command: list[str]
) -> None:
    program(
        folder,
        """
        import os, causeway
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
        causeway.report(1, loss=0.5)
        EventFileWriter(os.environ["CAUSEWAY_LOGS"] + "/train").close()
        """,
    )
    words = ("--nodes", "2", "--launcher", "none", "--", sys.executable, "train.py")
    assert causeway("run", "--local", *words).code == 0
    with (
        reserved(1) as (port,),
        # Without a kubeconfig it is this machine.
        subprocess.Popen([*command, "board", "--port", str(port)], env=environment) as process,
    ):
        try:
            wanted = {"project-1/train", "project-1/worker-1/train", "project-1/causeway.report"}
            wait(lambda: runs_of(port) == wanted)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.terminate()  # and with it TensorBoard


def runs_of(port: int) -> set[str]:
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/data/runs", timeout=30) as answer:
            return {*json.loads(answer.read())}
    except OSError:
        return set()


def test_without_tensorboard_the_board_says_what_to_install(
    folder: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    """A finder that knows no tensorboard is in place of an environment without it."""
    hidden = (
        "import importlib.util as finder, sys; found = finder.find_spec; "
        "finder.find_spec = lambda name, *more: None if name == 'tensorboard' else found(name, *more);"
        "from causeway.cli import main; sys.argv = ['causeway', 'board', '--local']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", hidden], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "causeway-client[board]" in done.stderr) == (1, True), done.stderr
