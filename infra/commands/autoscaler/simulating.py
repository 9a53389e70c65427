"""`invoke autoscaler.simulate`: what a trace of jobs would have waited and cost in this environment."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from infra.commands.autoscaler import configuring
from infra.commands.environment import Understood


def simulate(understood: Understood, trace: str, *, plot: str, days: str, json: bool) -> int:
    """A table, or figures; 1 if work was left undone. Without a trace, the one that ships with us."""
    from infra.autoscaler.simulate import command
    from infra.errors import UsageError

    try:
        until = float(days) if days else None
    except ValueError:
        raise UsageError(f"--days {days}: how many days of the trace, a number") from None
    with TemporaryDirectory(prefix="causeway-") as folder:
        config = Path(folder) / "config.json"
        config.write_text(configuring.text(understood), encoding="utf-8")
        return command.simulate(
            Path(trace) if trace else None,
            config=config,
            plot=Path(plot) if plot else None,
            as_json=json,
            until=until,
        )
