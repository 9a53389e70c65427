"""Bodies for instances: a program that makes a machine where the API has only a record of one.

``CAUSEWAY_MACHINES`` names it when the server starts. It is called as ``PROGRAM VERB``, with JSON on standard
input, each time in a thread of its own, one call at a time for an instance::

    start      {"instance", "image", "region", "instance_type", "user_data", "public_key", "hostname"}
    stop       {"instance"}
    image      {"instance", "image"}
    terminate  {"instance"}

``start`` brings it up, with the public key in authorized_keys, and answers {"address": "127.91.0.5"}, where
its port 22 is; it may come again for one that was stopped. No answer: this instance stays without a body. An
exit code other than 0: the instance never comes up, and standard error says why. ``stop`` shuts it down, and
keeps its disk. ``image`` makes an image of its disk; a later ``start`` may name that, also for a copy in
another region. ``terminate`` takes it away, disk and all.

The program's processes must not outlive the server, whatever ends that. On its way out it calls
``terminate`` for each that is left.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

VARIABLE: Final = "CAUSEWAY_MACHINES"

_TIMEOUT: Final = 600.0
"""Seconds a call may take."""


class NoBodyError(Exception):
    """The program could not do it; its last words."""


def program() -> str:
    """The program's path; empty without one."""
    return os.environ.get(VARIABLE, "")


def call(verb: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """One call of the program; its answer. ``NoBodyError`` when it fails."""
    try:
        ran = subprocess.run(
            [program(), verb],
            input=json.dumps(asked), capture_output=True, text=True, timeout=_TIMEOUT, check=False,
        )  # fmt: skip
        if ran.returncode:
            words = ran.stderr.strip().splitlines()[-3:]
            raise NoBodyError(" ".join(words) or f"{verb}: exit code {ran.returncode}")
        answer = json.loads(ran.stdout) if ran.stdout.strip() else {}
    except (OSError, subprocess.TimeoutExpired, ValueError) as problem:
        raise NoBodyError(f"{program()} {verb}: {problem}") from None
    if not isinstance(answer, dict):
        raise NoBodyError(f"{program()} {verb} answers {answer!r}")
    return answer


class Bodies:
    """Which instances have one, and calls in their order."""

    def __init__(self) -> None:
        self._locks: dict[str, threading.Lock] = {}
        self._one = threading.Lock()
        self._living: set[str] = set()

    def has(self, instance: str) -> bool:
        return instance in self._living

    def do(
        self, verb: str, asked: Mapping[str, Any], then: Callable[[dict[str, Any] | None, str], None]
    ) -> None:
        """Call the program from a thread; ``then`` gets its answer, or None and what went wrong."""
        instance = str(asked["instance"])
        with self._one:
            lock = self._locks.setdefault(instance, threading.Lock())

        def work() -> None:
            with lock:
                try:
                    answer = call(verb, asked)
                except NoBodyError as problem:
                    then(None, str(problem))
                    return
                if verb == "start" and answer.get("address"):
                    self._living.add(instance)
                if verb == "terminate":
                    self._living.discard(instance)
                then(answer, "")

        threading.Thread(target=work, daemon=True).start()

    def end(self) -> None:
        """All of them go: the server ends."""
        for instance in sorted(self._living):
            try:
                call("terminate", {"instance": instance})
            except NoBodyError:
                continue


BODIES: Final = Bodies()
