"""A model of Kueue 0.19, as far as rendered configurations use it: which job is admitted, when, and with
which flavor.

::

    rules       the configuration: flavors, queues, quotas, checks, delays
    quota       usage of quota, and borrowing
    preemption  whose quota is reclaimed for whom
    admission   the scheduling cycle: heads of queues, flavors, order
    controller  time: provisioning requests, back-off, topology, the end of jobs

From Kueue's source (v0.19.2: ``pkg/scheduler``, ``pkg/cache``, ``pkg/controller/admissionchecks``).
``tests/autoscaler/kube/admissions.py`` is a table of scenarios that both the model and the real Kueue pass.

Not modelled, because rendered configurations do not use it or a trace cannot express it: nested cohorts,
limits of borrowing and lending, several pod sets in one workload, partial admission, preemption for topology
only, the second choice if the heads of two queues want the same victims in one cycle.
"""

from infra.simulator.kueue.admission import Admission
from infra.simulator.kueue.controller import Kueue, given
from infra.simulator.kueue.rules import Choice, Queue, Rules, of_groups, read
from infra.simulator.kueue.workload import Workload

__all__ = ["Admission", "Choice", "Kueue", "Queue", "Rules", "Workload", "given", "of_groups", "read"]
