"""A model of Kueue 0.19, as far as the product renders it: who is admitted, when, and to which flavor.

::

    rules       what is rendered: flavors, queues, quotas, checks, delays
    quota       who uses how much quota, and who borrows
    preemption  whose quota is taken back for whom
    admission   the scheduling cycle: heads of queues, flavors, order
    controller  time: provisioning requests, back-off, topology, the end of jobs

From Kueue's source (v0.19.2: ``pkg/scheduler``, ``pkg/cache``, ``pkg/controller/admissionchecks``).
``tests/autoscaler/kube/admissions.py`` is a table of scenarios that the model and the real Kueue both pass.

Left out, because what is rendered does not use it or a trace cannot say it: cohorts in cohorts, limits of
borrowing and lending, several pod sets in one workload, partial admission, preemption that only topology
calls for, the second choice when two queues' heads want the same victims in one cycle.
"""

from infra.simulator.kueue.admission import Admission
from infra.simulator.kueue.controller import Kueue, given
from infra.simulator.kueue.rules import Choice, Queue, Rules, of_groups, read
from infra.simulator.kueue.workload import Workload

__all__ = ["Admission", "Choice", "Kueue", "Queue", "Rules", "Workload", "given", "of_groups", "read"]
