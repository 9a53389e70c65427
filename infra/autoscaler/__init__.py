"""The batch autoscaler: works out what pending work needs, and sets the sizes of Auto Scaling groups.

A controller beside the line from spec to files: it ships in an image of its own, reads the configuration that
``infra.render.kubernetes.autoscaler`` writes, and imports of the rest the catalogue alone.

::

    kube, aws ──> Snapshot ──> decide(snapshot, memory, config, now) ──> Decision ──> executor
                                  ^                                        │
                                  └───────────────── Memory ───────────────┘

``decide`` and all that it calls are pure: no clock, no network, the same inputs give the same answer.

::

    observed         what a loop sees: the snapshot, and the cluster's state worked out from it
    placement        where pending pods go, and which groups grow for them
    scale_down       which machines end, and how
    launch_failures  what AWS could not launch, and how long it is left alone
    reporting        Events, metrics, logs, notices, availability
    aws, kube        the two APIs: reads and writes

``infra.simulator`` runs ``decide`` against models of AWS and Kubernetes; it is not in the image.
"""
