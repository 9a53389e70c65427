"""What would have happened: a trace of jobs, a model of AWS and of Kubernetes, and our autoscaler.

::

    trace       what work came when
    conditions  how machines boot, where there are any, what breaks
    cloud       Auto Scaling groups and their machines
    cluster     nodes, pods, the scheduler
    jobs        how work gets on, is interrupted, starts again
    kueue       which jobs may begin, and on which flavor; off without rules
    world       all of it, as the snapshots that `decide` reads, and the writes that it asks for
    policy      the autoscaler in it
    runner      its loop
    reporting   table and plot

All chance is seeded: the same trace, conditions and configuration give the same result.
"""

from infra.simulator.runner import Result, run

__all__ = ["Result", "run"]
