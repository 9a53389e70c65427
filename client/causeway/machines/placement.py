"""Decides which worker goes to which machine. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from causeway.errors import CausewayError
from causeway.job import Gpus
from causeway.workers import Workers, ends_with


def wanted(workers: Sequence[Workers]) -> list[dict[str, Any]]:
    """Return the requested kinds of GPUs, one for each role."""
    return [gpus_of(each.gpus) for each in workers]


def gpus_of(gpus: Gpus) -> dict[str, Any]:
    return {"count": gpus.count, "model": gpus.model, "memory": gpus.memory}


def place(workers: Sequence[Workers], checked: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return worker → machine, the first worker first. Machines are used in turn, each where its GPUs are
    free.

    ``checked``: machine → its answer to ``check``. Raises CausewayError that names the holders of the GPUs.
    """
    free = {
        host: {gpu["uuid"]: gpu["fits"] for gpu in answer["gpus"] if not gpu["taken"]}
        for host, answer in checked.items()
    }
    placed: dict[str, str] = {}
    hosts, turn = [*checked], 0
    for kind, each in sorted(enumerate(workers), key=lambda pair: pair[1].role != ends_with(workers)):
        for rank in range(each.count):
            for at in range(len(hosts)):
                host = hosts[(turn + at) % len(hosts)]
                fitting = [uuid for uuid, fits in free[host].items() if fits[kind]]
                if len(fitting) >= each.gpus.count:
                    for uuid in fitting[: each.gpus.count]:
                        del free[host][uuid]
                    placed[f"{each.role}-{rank}"] = host
                    turn = (turn + at + 1) % len(hosts)
                    break
            else:
                raise CausewayError(_refused(workers, kind, checked))
    return placed


def room(workers: Sequence[Workers], checked: Mapping[str, Mapping[str, Any]], most: int) -> int:
    """Return how many runs of these workers, up to ``most``, can be placed at the same time."""
    for count in range(most, 0, -1):
        try:
            place([replace(each, count=each.count * count) for each in workers], checked)
        except CausewayError:
            continue
        return count
    return 0


def emptied(checked: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the machines as if all their GPUs were free."""
    return {
        host: {**answer, "gpus": [{**gpu, "taken": ""} for gpu in answer["gpus"]]}
        for host, answer in checked.items()
    }


def shortest_first(checked: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Sort machines by the length of their queues."""
    return dict(sorted(checked.items(), key=lambda pair: len(pair[1].get("queue", ()))))


def _refused(workers: Sequence[Workers], kind: int, checked: Mapping[str, Mapping[str, Any]]) -> str:
    each = workers[kind]
    many = (
        f"{each.count} workers with {each.gpus.count} GPUs" if each.count > 1 else f"{each.gpus.count} GPUs"
    )
    model = "".join(f", {text}" for text in (each.gpus.model, each.gpus.memory and "of that memory") if text)
    lines = [f"{many}{model} cannot be placed:"]
    for host, answer in checked.items():
        fitting = [gpu for gpu in answer["gpus"] if gpu["fits"][kind]]
        taken = [gpu["taken"] for gpu in fitting if gpu["taken"]]
        if not fitting:
            names = ", ".join(dict.fromkeys(gpu["name"] for gpu in answer["gpus"]))
            lines.append(f"  {host}: has no such GPUs, only {names}" if names else f"  {host}: has no GPUs")
        else:
            said = f"  {host}: {len(fitting) - len(taken)} of {len(fitting)} GPUs are free"
            lines.append("; ".join([said, *taken]))
    return "\n".join(lines)
