"""``causeway-gpu-health``: one check, as the timer runs it; ``forget`` after a repair; ``burn-in``."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from gpu_health import burn_in, check, cluster, features, judge, report
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
    if arguments.command == "burn-in":
        limit = arguments.limit or burn_in.LEVELS[arguments.level] * 60
        code = burn_in.run(settings, arguments.level, limit, attended=arguments.attended)
        if code in (burn_in.PASSED, burn_in.FAILED):
            _check(settings)
        return code
    return _check(settings)


def _check(settings: Settings) -> int:
    state = judge.State.read(settings.state)
    now = int(time.time())
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
    parser.add_argument("command", nargs="?", choices=["check", "forget", "burn-in"], default="check")
    parser.add_argument("--settings", type=Path, default=SETTINGS, help=f"default: {SETTINGS}")
    burning = parser.add_argument_group("burn-in", "DCGM's diagnostics and an all-reduce over all GPUs")
    burning.add_argument("--level", type=int, choices=burn_in.LEVELS, default=3, help="DCGM's (default: 3)")
    burning.add_argument("--limit", type=float, metavar="SECONDS", help="how long DCGM may take")
    burning.add_argument("--attended", action="store_true", help="end with the standard input")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
