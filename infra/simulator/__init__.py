"""What would have happened: a trace of jobs, a model of AWS and of Kubernetes, and a policy that steers.

::

    trace       what work came when
    conditions  how machines boot, where there are any, what breaks
    cloud       Auto Scaling groups and their machines
    cluster     nodes, pods, the scheduler
    jobs        how work gets on, is interrupted, starts again
    kueue       which jobs may begin, and on which flavor; off without rules
    world       all of it, as the snapshots that `decide` reads, and the writes that it asks for
    policy      ours; `benchmarks/autoscaler/peers` has models of others
    runner      the loop
    reporting   table and plot

All chance is seeded: the same trace, conditions and configuration give the same result.
"""

from infra.simulator.reporting import report
from infra.simulator.runner import Result, run

__all__ = ["Result", "report", "run"]
