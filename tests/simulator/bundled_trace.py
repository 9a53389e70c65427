"""The shipped trace: an experiment that grows from one GPU to 1,600 within three weeks, in a lab at work.

It begins on one GPU, fills the lab's own sixty Titan X within days, and then asks for 1,600 GPUs at once,
several times. Others train and sweep meanwhile. When it grows, the primary region runs out of machines: for
hours there is none, then some, later again; spot machines are taken away. All of it is made by a seed.

``PYTHONPATH=tests python -m simulator.bundled_trace PATH`` writes the file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

from simulator.worlds import write

from infra.simulator import example
from infra.simulator.conditions import Capacity, Conditions
from infra.simulator.trace import Job, Trace

HOUR, DAY = 3600.0, 86400.0


def conditions() -> Conditions:
    """When and where there is not enough."""
    return Conditions(
        seed=2016,
        stillborn=0.004,
        interrupted=0.01,
        physical=(example.TITANS,),
        capacity=(
            # The second week: one zone is empty for most of a day, then the region for an evening.
            Capacity("us-west-2", 9 * DAY, 9 * DAY + 20 * HOUR, 0, "p3.16xlarge", ("us-west-2a",)),
            Capacity("us-west-2", 10 * DAY + 16 * HOUR, 10 * DAY + 23 * HOUR, 6, "p3.16xlarge"),
            # The third: the big runs meet a region that has sixty machines at most, and none on the worst
            # day.
            Capacity("us-west-2", 14 * DAY, 16 * DAY, 60, "p3.16xlarge"),
            Capacity("us-west-2", 16 * DAY, 17 * DAY + 12 * HOUR, 0, "p3.16xlarge"),
            Capacity("us-east-1", 14 * DAY, 21 * DAY, 90, "p3.16xlarge"),
            # Spot machines run short on weekday afternoons of the third week.
            *(
                Capacity(
                    "us-west-2",
                    day * DAY + 18 * HOUR,
                    day * DAY + 23 * HOUR,
                    20,
                    "p3.2xlarge",
                    spot=True,
                )
                for day in range(14, 19)
            ),
        ),
    )


def story(seed: int = 2016) -> Trace:
    """The trace."""
    random = Random(seed)
    jobs = [*_experiment(), *_colleagues(random)]
    jobs.sort(key=lambda job: (job.submit, job.name))
    return Trace(tuple(jobs), conditions())


def _experiment() -> list[Job]:
    """The experiment of ada: each step is larger than the one before."""
    found = [
        _single("idea", 9 * HOUR, 1, 5 * HOUR),
        _single("idea-again", 33 * HOUR, 1, 7 * HOUR),
        _single("seeds", 57 * HOUR, 4, 6 * HOUR),
        _single("more-seeds", 81 * HOUR, 16, 5 * HOUR),
        _single("titans", 106 * HOUR, 60, 8 * HOUR),
    ]
    # Second week: on AWS, as gangs of whole machines that save every quarter of an hour. One of them is
    # submitted on the evening on which the primary region has six machines.
    for number, (day, hour, machines) in enumerate(
        [(7, 10, 4), (8, 10, 8), (9, 10, 16), (10, 17, 24), (11, 11, 32), (12, 12, 32)]
    ):
        found.append(_gang(f"train-{number}", day * DAY + hour * HOUR, machines, 4 * HOUR))
    # Third week: 1,600 GPUs at once, and one network on a hundred machines where no region but one has them.
    for number, (day, hour, pods, hours) in enumerate(
        [(14, 10, 800, 2.0), (15, 10, 1600, 1.5), (16, 14, 1600, 2.0), (18, 10, 1600, 1.5)]
    ):
        found.append(
            Job(
                submit=day * DAY + hour * HOUR,
                name=f"evolution-{number}",
                pods=pods,
                seconds=hours * HOUR,
                gpus=1,
                cpu=6000,
                memory=48000,
                labels={"causeway.dev/pool": "training"},
                checkpoint=600,
                user="ada",
            )
        )
    found.append(_gang("wide", 15 * DAY + 18 * HOUR, 100, 3 * HOUR))
    return found


def _single(name: str, submit: float, pods: int, seconds: float) -> Job:
    return Job(
        submit=submit, name=name, pods=pods, seconds=seconds, gpus=1, cpu=4000, memory=14000, user="ada"
    )


def _gang(name: str, submit: float, machines: int, seconds: float) -> Job:
    return Job(
        submit=submit,
        name=name,
        pods=machines,
        seconds=seconds,
        gpus=8,
        cpu=60000,
        memory=400000,
        gang=True,
        labels={"causeway.dev/pool": "training"},
        checkpoint=900,
        user="ada",
    )


def _colleagues(random: Random) -> list[Job]:
    """Everyone else: by day more than at night, on weekdays more than at weekends."""
    users = ("bob", "chen", "dana", "eli", "fatima", "greg")
    found: list[Job] = []
    at = 6 * HOUR
    while at < 20 * DAY:
        weekend, hour = (at // DAY) % 7 >= 5, (at % DAY) / HOUR
        busy = (1.0 if 9 <= hour < 20 else 0.25) * (0.35 if weekend else 1.0)
        at += random.expovariate(busy / (0.75 * HOUR))
        found.append(_job(random, len(found), round(at), random.choice(users)))
    return found


def _job(random: Random, number: int, at: float, user: str) -> Job:
    kind = random.random()
    seconds = round(
        min(max(random.lognormvariate(7.9, 1.1), 240), 18 * HOUR)
    )  # median: three quarters of an hour
    if kind < 0.45:  # one GPU, wherever there is one
        return Job(
            submit=at, name=f"try-{number}", seconds=seconds, gpus=1, cpu=4000, memory=14000, user=user
        )
    if kind < 0.65:  # a sweep of single GPUs on the spot market
        return Job(
            submit=at,
            name=f"sweep-{number}",
            pods=random.choice((8, 12, 20, 32, 48)),
            seconds=seconds,
            gpus=1,
            cpu=6000,
            memory=40000,
            labels={"causeway.dev/pool": "sweeps"},
            checkpoint=600,
            user=user,
        )
    if kind < 0.85:  # preparing data
        return Job(
            submit=at, name=f"data-{number}", pods=random.choice((1, 2, 4, 8)), seconds=seconds, cpu=8000,
            memory=16000, user=user,
        )  # fmt: skip
    machines = random.choice((1, 1, 2, 2, 4))
    return Job(  # training on whole machines
        submit=at,
        name=f"train-{user}-{number}",
        pods=machines,
        seconds=2 * seconds,
        gpus=8,
        cpu=60000,
        memory=400000,
        gang=machines > 1,
        labels={"causeway.dev/pool": "training"},
        checkpoint=1800,
        user=user,
    )


def main() -> None:
    """Write the file."""
    write(Path(sys.argv[1]), story())


if __name__ == "__main__":
    main()
