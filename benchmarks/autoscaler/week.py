"""``python -m benchmarks.autoscaler.week``: a week of a cluster of 2,000 GPUs in the simulator.

The figure: under 60 s on two cores.
"""

from __future__ import annotations

import sys
import time
from random import Random

from infra.simulator import example, reporting, run
from infra.simulator.conditions import Capacity, Conditions
from infra.simulator.trace import Job, Trace

DAY, HOUR = 86400.0, 3600.0
GPUS = 2000
SHARE = 0.75
"""Of the GPUs, how many are at work on average."""


def week(seed: int = 1) -> Trace:
    """Work for seven days: half of the hours in gangs of up to 32 machines, the rest in machines and
    GPUs."""
    random = Random(seed)
    hours, jobs = GPUS * SHARE * 7 * 24, list[Job]()
    while hours > 0:
        seconds = min(max(random.lognormvariate(9.4, 0.9), 600), 20 * HOUR)
        kind = random.random()
        machines = random.choice((2, 4, 8, 8, 16, 32)) if kind < 0.15 else 1
        gpus = 8 if kind < 0.4 else random.choice((1, 1, 2, 4))
        pods = machines if kind < 0.4 else random.choice((1, 1, 4, 16))
        jobs.append(
            Job(
                submit=round(random.uniform(0, 7 * DAY)),
                name=f"job-{len(jobs)}",
                pods=pods,
                seconds=round(seconds),
                gpus=gpus,
                cpu=gpus * 6000,
                memory=gpus * 48000,
                gang=machines > 1,
                labels={"causeway.dev/pool": "training"},
                user=f"user-{random.randrange(40)}",
            )
        )
        hours -= pods * gpus * seconds / HOUR
    conditions = Conditions(capacity=(Capacity("us-west-2", 2 * DAY, 3 * DAY, 150, "p3.16xlarge"),))
    return Trace(tuple(sorted(jobs, key=lambda job: (job.submit, job.name))), conditions)


def main() -> int:
    """Run it and say how long it took."""
    asked = week()
    began = time.process_time()
    result = run(example.config(most=250), asked, until=7 * DAY)
    processor = time.process_time() - began
    pods = sum(job.pods for job in asked.jobs)
    work = sum(job.pods * job.gpus * job.seconds for job in asked.jobs) / HOUR
    print(
        f"{len(asked.jobs)} jobs, {pods} pods, {work:,.0f} GPU-hours of work: "
        f"{result.seconds:.1f} s, of which the processor was ours for {processor:.1f} s"
    )
    from rich.console import Console

    Console(width=160).print(reporting.report(result))
    return 0 if processor < 60 else 1


if __name__ == "__main__":
    sys.exit(main())
