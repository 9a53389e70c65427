"""Simulates the autoscaler on a trace of jobs, with models of AWS and of Kubernetes.

::

    trace       the jobs and their submission times
    conditions  boot times, capacity, failures
    cloud       Auto Scaling groups and their machines
    cluster     nodes, pods, the scheduler
    jobs        progress of jobs, interruptions, restarts
    kueue       admission of jobs, and their flavors; off without rules
    world       all of these: builds the snapshots that `decide` reads, and executes its writes
    policy      the autoscaler in the simulation
    runner      the loop
    reporting   table and plot

Random numbers are seeded: the same trace, conditions and configuration give the same result.
"""

from infra.simulator.runner import Result, run

__all__ = ["Result", "run"]
