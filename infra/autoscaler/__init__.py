"""The batch autoscaler: computes what pending work needs, and sets the sizes of Auto Scaling groups.

A controller outside of the data flow from spec to files: it has its own container image, reads the
configuration written by ``infra.render.kubernetes.autoscaler``, and imports only the catalogue from the
other packages.

::

    kube, aws ──> Snapshot ──> decide(snapshot, memory, config, now) ──> Decision ──> executor
                                  ^                                        │
                                  └───────────────── Memory ───────────────┘

``decide`` and everything that it calls are pure: no clock, no network; equal inputs give equal results.

::

    observed         the snapshot of one loop, and the cluster's state computed from it
    placement        where pending pods go, and which groups grow for them
    scale_down       which machines are terminated, and how
    launch_failures  launches that AWS refused, and back-offs after them
    reporting        Events, metrics, logs, notices, availability
    aws, kube        the two APIs: reads and writes

``infra.simulator`` runs ``decide`` against models of AWS and Kubernetes; it is not in the image.
"""
