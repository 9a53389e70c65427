"""`invoke autoscaler.simulate`: waiting times and costs of a trace of jobs in this environment."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from infra.commands.autoscaler import configuring
from infra.commands.environment import Project
from infra.commands.terminal import note
from infra.drive.extras import require
from infra.errors import UsageError

if TYPE_CHECKING:
    from infra.model import Cluster
    from infra.simulator.conditions import Machines
    from infra.simulator.kueue import Rules


def simulate(project: Project, trace: str, *, plot: str, days: str, json: bool) -> int:
    """Print a table, or draw plots; 1 if jobs did not finish.

    Without a trace, the bundled one is used in the lab that it was made for, as its jobs use that lab's
    pools.
    """
    from infra.simulator import command

    try:
        until = float(days) if days else None
    except ValueError:
        raise UsageError(f"--days {days}: how many days of the trace, a number") from None
    picture = Path(plot) if plot else None
    if picture:
        require("plots", "--plot")
    if not trace:
        note("no --trace: the bundled trace is used, with the pools of its own lab")
        return command.simulate(plot=picture, as_json=json, until=until)
    with TemporaryDirectory(prefix="causeway-") as folder:
        config = Path(folder) / "config.json"
        config.write_text(configuring.text(project), encoding="utf-8")
        return command.simulate(
            Path(trace),
            config=config,
            physical=machines(project.cluster),
            rules=rules(project.cluster),
            plot=picture,
            as_json=json,
            until=until,
        )


def rules(cluster: Cluster) -> Rules | None:
    """Kueue's rules as rendered with a running autoscaler; None if it is disabled, or there are no queues."""
    from msgspec.structs import replace

    from infra.render.kubernetes import queue_policies, queues
    from infra.render.kubernetes.charts.queues import configuration
    from infra.simulator import kueue

    image = cluster.autoscaler.image or "simulated"
    settings = replace(cluster.autoscaler, enabled=True, dry_run=False, image=image)
    running = replace(cluster, autoscaler=settings)
    objects = [each for some in queues.objects(running).values() for each in some]
    if not any(each["kind"] == "ClusterQueue" for each in objects):
        return None
    classes: dict[int | None, tuple[str, ...]] = {}
    for each in cluster.kubernetes.priority_classes:
        classes[each.value] = each.gpu_classes
        if each.default:
            classes[None] = each.gpu_classes
    return kueue.read(objects, configuration(running), queue_policies.sizes(running), classes)


def machines(cluster: Cluster) -> tuple[Machines, ...]:
    """The spec's own machines that accept work, with equal ones grouped."""
    from infra.render.kubernetes.autoscaler import amounts
    from infra.simulator.conditions import Machines

    counts: Counter[tuple[str, int, int, int, tuple[tuple[str, str], ...]]] = Counter()
    for site in cluster.sites:
        for node in site.nodes:
            if node.runs_pods:
                offered = amounts(node.allocatable)
                offered_gpus = offered.get("nvidia.com/gpu", 0)
                size = (offered["cpu"], offered["memory"] >> 20)
                counts[site.name, offered_gpus, *size, tuple(sorted(node.labels.items()))] += 1
    return tuple(
        Machines(
            name=f"{site}-{number}",
            count=count,
            gpus=offered_gpus,
            cpu=cpu,
            memory=memory,
            labels=dict(labels),
        )
        for number, ((site, offered_gpus, cpu, memory, labels), count) in enumerate(counts.items())
    )
