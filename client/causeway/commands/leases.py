"""``gpus --on`` and ``reserve``: who uses the GPUs of machines, until when, and who waits for them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from causeway.commands.tables import show_table
from causeway.errors import CausewayError, UnreachableError
from causeway.machines.ssh import at_once, hosts_named, tried
from causeway.units import format_duration, format_size

_GOES_FIRST = ("MEMORY", "SINCE", "MODEL")
_FREE = "free"


def gpus_on(names: Sequence[str], *, as_json: bool) -> int:
    """Print a row for each GPU, then who waits. Raises UnreachableError if a machine does not answer."""
    answers, errors = tried(hosts_named(names), lambda host: host.ask("gpus"))
    rows = [row for host, said in answers.items() for row in _rows(host, said)]
    queue = [
        {"host": host, **{name: each[name] for name in ("user", "run", "worker", "count", "since")}}
        for host, said in answers.items()
        for each in said["queue"]
    ]
    if as_json:
        print(json.dumps({"gpus": rows, "queue": queue}))
    elif rows:
        out = Console(highlight=False, soft_wrap=True)
        titles = ("HOST", "GPU", "MODEL", "MEMORY", "STATE", "WHO", "RUN", "SINCE", "UNTIL")
        show_table(out, titles, [_cells(row) for row in rows], _GOES_FIRST)
        for each in queue:
            gpus = f"{each['count']} GPU{'s' if each['count'] > 1 else ''}"
            at = _clock(each["since"])
            out.print(Text(f"{each['host']}: {each['user']} ({each['run']}) waits for {gpus} since {at}"))
    if errors:
        raise UnreachableError("\n".join(map(str, errors.values())))
    return 0


def reserve(names: Sequence[str], seconds: int, gpus: int | None, *, as_json: bool) -> int:
    """Lease GPUs of machines, by default all, for a time. If one of several machines refuses, none is
    leased."""
    hosts = hosts_named(names)
    answers, errors = tried(hosts, lambda host: host.ask("reserve", gpus=gpus, seconds=seconds))
    if errors:
        made = [host for host in hosts if host.name in answers]
        tried(made, lambda host: host.ask("unreserve", name=answers[host.name]["name"]))
        raise CausewayError("\n".join(map(str, errors.values())))
    if as_json:
        print(json.dumps([{"host": host, **said} for host, said in answers.items()]))
    for host, said in answers.items() if not as_json else ():
        found = ", ".join(map(str, said["gpus"]))
        print(f"{host}: GPUs {found} are yours for {format_duration(seconds)}, until {_clock(said['until'])}")
    return 0


def unreserve(names: Sequence[str], *, as_json: bool) -> int:
    """End the caller's reservations of machines. Runs that use them keep their GPUs."""
    answers = at_once(hosts_named(names), lambda host: host.ask("unreserve", name="*"))
    if as_json:
        print(json.dumps([{"host": host, "gpus": said["gpus"]} for host, said in answers.items()]))
    for host, said in answers.items() if not as_json else ():
        found = ", ".join(map(str, said["gpus"]))
        ended = f"GPUs {found} are not reserved any more" if found else "you have no reservation"
        print(f"{host}: {ended}")
    return 0


def _rows(host: str, said: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for gpu in said["gpus"]:
        lease, reserved = gpu["lease"], gpu["reserved"]
        has = lease or reserved
        state = (
            "reserved" if reserved and not lease else "leased" if lease else "used" if gpu["taken"] else _FREE
        )
        yield {
            "host": host, "gpu": gpu["index"], "model": gpu["name"], "memory_mib": gpu["memory"],
            "state": state, "user": has.get("user"), "run": lease.get("run"),
            "since": has.get("since"), "until": has.get("until"), "reserved_until": reserved.get("until"),
            "reason": gpu["taken"],
        }  # fmt: skip


def _cells(row: Mapping[str, Any]) -> tuple[str | Text, ...]:
    state = Text(row["state"], style="green" if row["state"] == _FREE else "")
    return (
        row["host"], str(row["gpu"]), row["model"], format_size(row["memory_mib"] << 20), state,
        row["user"] or (row["reason"] if row["state"] == "used" else ""), row["run"] or "",
        _clock(row["since"]), _clock(row["until"]),
    )  # fmt: skip


def _clock(at: float | None) -> str:
    """Format a time as ``14:05``, with the day if it is not today; empty for None."""
    if at is None:
        return ""
    then, today = time.localtime(at), time.localtime()
    return time.strftime("%H:%M" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)
