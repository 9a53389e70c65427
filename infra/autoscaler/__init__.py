"""The batch autoscaler: works out what pending work needs, and sets the sizes of Auto Scaling groups.

A controller beside the line from spec to files: it ships in an image of its own, reads the configuration that
``infra.render.kubernetes.autoscaler`` writes, and imports of the rest the catalogue alone.

::

    kube, aws ──> Snapshot ──> decide(snapshot, memory, config, now) ──> Decision ──> executor
                                  ^                                        │
                                  └───────────────── Memory ───────────────┘

``decide`` and all that it calls are pure: no clock, no network, the same inputs give the same answer.
"""
