"""``python -m infra.autoscaler run | explain``: run the controller, or show what it would do."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from infra.errors import CausewayError

if TYPE_CHECKING:
    from infra.autoscaler.assembly import Cluster
    from infra.autoscaler.config import Config
    from infra.autoscaler.loop import Loop

CONFIG: Final = Path("/etc/autoscaler/config/config.json")
"""The path at which the Deployment mounts it."""

_HANGS: Final = 300.0
"""Seconds without a finished loop, successful or not, after which the process should be restarted."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code. Errors are printed as one line, without a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    asked = _parser().parse_args(given)
    try:
        return int(asked.work(asked))
    except CausewayError as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.autoscaler", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="watch, decide and write, until stopped")
    run.add_argument("--dry-run", action="store_true", help="write nothing, and log what would be written")
    run.add_argument("--once", action="store_true", help="one loop; exit code 1 if it failed")
    run.add_argument("--port", type=int, default=None, help="of metrics and probes; 0 for any")
    run.set_defaults(work=_run)
    explain = commands.add_parser("explain", help="why pending pods wait; nothing is written")
    explain.add_argument("--pod", metavar="NAMESPACE/NAME", help="this pod alone")
    explain.add_argument("--json", action="store_true", help="for programs")
    explain.set_defaults(work=_explain)
    for command in (run, explain):
        command.add_argument("--config", type=Path, default=CONFIG, help=f"the configuration ({CONFIG})")
        command.add_argument(
            "--kubeconfig", type=Path, help="the way to the cluster; without it, the pod's service account"
        )
    return parser


def _run(asked: argparse.Namespace) -> int:
    from infra.autoscaler import config as configurations
    from infra.autoscaler.assembly import Cluster, controller
    from infra.autoscaler.loop import collect_seldom
    from infra.autoscaler.reporting import logs
    from infra.autoscaler.reporting.metrics import PORT, Metrics, Server

    config = configurations.read(asked.config)
    logs.begin()
    collect_seldom()
    stop = threading.Event()
    _stop_on_signals(stop)
    cluster = Cluster(config, asked.kubeconfig)
    dry = asked.dry_run or config.dry_run
    metrics = Metrics(config)
    loop = controller(config, cluster, dry=dry, stop=stop, observers=(logs.Teller(), metrics))
    server = Server(
        metrics.registry,
        healthy=lambda: _hangs(loop, config),
        ready=lambda: None if cluster.watcher.ready else "the cluster was not read yet",
        port=PORT if asked.port is None else asked.port,
    )
    cluster.watcher.start()
    if not dry:
        cluster.lease.start()
    try:
        if asked.once:
            return _once(loop, cluster, dry=dry)
        _wait(stop, lambda: cluster.watcher.ready)
        loop.run()
        return 0
    finally:
        cluster.stop()
        server.close()


def _once(loop: Loop, cluster: Cluster, *, dry: bool) -> int:
    cluster.watcher.wait(_HANGS)
    _wait(loop.stop, lambda: dry or cluster.lease.held())
    cycle = loop.once()
    return 0 if cycle.error is None and cycle.leading else 1


def _wait(stop: threading.Event, until: Any) -> None:
    while not until() and not stop.wait(0.1):
        pass


def _hangs(loop: Loop, config: Config) -> str | None:
    since = time.monotonic() - loop.turned
    return f"no loop has ended for {since:.0f} s" if since > max(_HANGS, 10 * config.interval) else None


def _stop_on_signals(stop: threading.Event) -> None:
    """The first signal stops the loop gracefully, a second one ends the process."""

    def handle(number: int, _: Any) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)


def _explain(asked: argparse.Namespace) -> int:
    from infra.autoscaler import config as configurations
    from infra.autoscaler.assembly import look
    from infra.autoscaler.decide import decide
    from infra.autoscaler.reporting import explain, verdict_table

    config = configurations.read(asked.config)
    snapshot, memory = look(config, asked.kubeconfig)
    decision = decide(snapshot, memory, config, snapshot.at)
    if asked.pod is not None:
        explained = explain.explain(snapshot, decision, asked.pod)
        print(_json(explain.plain(explained)) if asked.json else verdict_table.pod(explained).rstrip())
        return 0
    for what, why in {**snapshot.errors, **snapshot.faults}.items():
        print(f"can't be read: {what}: {why}", file=sys.stderr)
    if asked.json:
        print(_json({
            "at": decision.at,
            "stopped": decision.stopped,
            "verdicts": [*map(explain.plain, decision.verdicts)],
            "actions": decision.actions,
            "errors": snapshot.errors,
            "faults": snapshot.faults,
        }))  # fmt: skip
    else:
        print(verdict_table.verdicts(decision), end="")
    return 0


def _json(what: Any) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(what, order="sorted"), indent=2).decode()


if __name__ == "__main__":
    sys.exit(main())
