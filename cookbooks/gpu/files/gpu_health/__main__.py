"""``causeway-gpu-health``: one check, as the timer runs it; ``causeway-gpu-health forget`` after a repair."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from gpu_health import check, cluster, features, judge, report
from gpu_health.settings import Settings

SETTINGS = Path("/etc/causeway/gpu-health.json")


def main() -> int:
    """0 if the cluster has the result; 1 if it could not be updated, which the next check tries again."""
    arguments = _arguments()
    settings = Settings.read(arguments.settings)
    state = judge.State.read(settings.state)
    now = int(time.time())
    if arguments.command == "forget":
        state.forget(now)
        state.write(settings.state)
        return 0

    state.begin(check.boot(settings))
    findings = check.look(settings, state)
    judge.decide(state, findings, settings, now)
    # First of all: if a later step fails, the result is on the disk.
    state.write(settings.state)
    report.write(settings.report, findings, state, now)
    features.tell(settings.features, state)
    try:
        cluster.tell(settings, state, now)
        state.told = True
    except cluster.ClusterError as problem:
        state.told = False
        print(f"the cluster could not be updated: {problem}", file=sys.stderr)
    state.write(settings.state)
    return 0 if state.told else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="causeway-gpu-health", description=main.__doc__)
    parser.add_argument("command", nargs="?", choices=["check", "forget"], default="check")
    parser.add_argument("--settings", type=Path, default=SETTINGS, help=f"default: {SETTINGS}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
