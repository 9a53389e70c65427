"""`invoke vpn.maintain`: performs AWS's pending maintenance of tunnel endpoints at a time of your choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infra.commands import pki_store, session
from infra.commands.environment import Project
from infra.commands.terminal import columns, note, say, say_json
from infra.commands.vpn.tunnels import gateways_of
from infra.errors import UsageError
from infra.nearest import meant_one_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from infra.drive.vpn.cloud import Maintenance
    from infra.model.tunnels import SiteGateway, SiteTunnel


def maintain(project: Project, site: str, tunnel: str, *, plan: bool, json: bool) -> int:
    """Replace the endpoints of a site's tunnels with pending maintenance, one after the other; with
    ``plan``, only list them.

    Raises ``UsageError`` before any change for an unknown site or tunnel, or one that is not applied.
    """
    from infra.drive.ssh import Machine
    from infra.drive.vpn.cloud import Cloud
    from infra.drive.vpn.gateways import LiveGateway
    from infra.drive.vpn.maintenance import GatewayMarks, Upkeep, announced

    gateways = gateways_of(project, site)
    chosen = _chosen(project, gateways, tunnel)
    if not plan and session.is_embedded(project.environment, project.cluster):
        raise UsageError("no machines run behind the embedded AWS: only --plan works there")
    cloud = Cloud(project.cluster, project.outputs, pki_store.environ(project))
    if plan:
        _tell(chosen, announced(cloud, chosen), replaced=(), json=json)
        return 0
    command = f"invoke vpn.maintain {project.environment.options} --site {site}"
    replaced = [
        name
        for gateway in gateways
        if (wanted := [each.name for each in chosen if each in gateway.tunnels])
        for name in Upkeep(
            gate=LiveGateway(gateway, Machine(gateway.fqdn)),
            endpoints=cloud,
            marks=GatewayMarks(Machine(gateway.fqdn)),
            command=command + (f" --tunnel {tunnel}" if tunnel else ""),
            say=note,
        ).run(gateway.tunnels, wanted)
    ]
    if json:
        _tell(chosen, announced(cloud, chosen), replaced=replaced, json=True)
    elif replaced:
        say(f"{site}: replaced endpoints: {', '.join(replaced)}")
    else:
        say(f"{site}: no maintenance is pending")
    return 0


def _chosen(project: Project, gateways: Sequence[SiteGateway], name: str) -> list[SiteTunnel]:
    """The named tunnel to AWS, or all of them."""
    known = {each.name: each for gateway in gateways for each in gateway.tunnels if each.kind == "aws"}
    if name and name not in known:
        raise UsageError(f"{name}: {gateways[0].site} has no such tunnel to AWS; {meant_one_of(name, known)}")
    chosen = [known[name]] if name else list(known.values())
    if lacking := project.outputs.without_remote(chosen):
        options = project.environment.options
        raise UsageError(
            f"{', '.join(lacking)}: not known here; applied elsewhere? invoke outputs {options}; else: "
            f"invoke apply {options}"
        )
    return chosen


def _tell(
    tunnels: Collection[SiteTunnel],
    pending: Mapping[str, Maintenance],
    *,
    replaced: Collection[str],
    json: bool,
) -> None:
    rows: list[dict[str, Any]] = [
        {
            "tunnel": each.name,
            "connection": each.link,
            "pending": pending[each.name].pending,
            "auto_applied_after": _time(pending[each.name].auto_applied_after),
            "last_applied": _time(pending[each.name].last_applied),
            "replaced": each.name in replaced,
        }
        for each in tunnels
    ]
    if json:
        say_json(rows)
        return
    heading = ("tunnel", "maintenance", "AWS does it after", "last done")
    say(
        columns(
            heading,
            [
                (
                    row["tunnel"],
                    "pending" if row["pending"] else "none",
                    row["auto_applied_after"] or "-",
                    row["last_applied"] or "-",
                )
                for row in rows
            ],
        )
    )


def _time(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
