"""The outputs of the last apply, kept beside the state so that rendering does not need Terraform."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from ipaddress import AddressValueError, IPv4Address
from typing import Any

from infra.drive.build_folders import Folders, private
from infra.errors import DriveError
from infra.model import NO_OUTPUTS, Outputs
from infra.model.outputs import Addresses, FileSystemIds


def parse(values: Mapping[str, Any]) -> Outputs:
    """The outputs that renderers use, from the values of ``terraform output -json``, by their names in
    ``templates/terraform/root/outputs.tf.j2``. Missing outputs are left out."""
    tunnels = {}
    for link, connection in (values.get("vpn_connections") or {}).items():
        first, second = (tunnel["outside"] for tunnel in connection["tunnels"])
        if first and second:
            tunnels[link] = (IPv4Address(first), IPv4Address(second))
    instances = {
        host: Addresses(
            IPv4Address(one["private_ip"]), IPv4Address(one["public_ip"]) if one["public_ip"] else None
        )
        for host, one in (values.get("instances") or {}).items()
        if one["private_ip"]
    }
    file_systems = {
        site: {name: FileSystemIds(one["id"], dict(one["access_points"])) for name, one in named.items()}
        for site, named in (values.get("file_systems") or {}).items()
        if named
    }
    zones = {
        site: dict(network["zones"])
        for site, network in (values.get("networks") or {}).items()
        if network.get("zones")
    }
    identity = values.get("web_identity") or {}
    roles = dict(identity.get("roles") or {})
    issuers = dict((identity.get("issuer") or {}).get("urls") or {})
    database = str((values.get("tracking_database") or {}).get("address") or "")
    return Outputs(tunnels, instances, file_systems, zones, roles, issuers, database)


def keep(folders: Folders, values: Mapping[str, Any]) -> Outputs:
    """Parse the outputs and store them for ``recall``."""
    outputs = parse(values)
    text = json.dumps(
        {
            "vpn_connections": {
                link: {"tunnels": [{"outside": str(each)} for each in outsides]}
                for link, outsides in sorted(outputs.tunnels.items())
            },
            "instances": {
                host: {"private_ip": str(one.private), "public_ip": str(one.public) if one.public else None}
                for host, one in sorted(outputs.instances.items())
            },
            "file_systems": {
                site: {
                    name: {"id": one.id, "access_points": dict(sorted(one.access_points.items()))}
                    for name, one in sorted(named.items())
                }
                for site, named in sorted(outputs.file_systems.items())
            },
            "networks": {
                site: {"zones": dict(sorted(zones.items()))} for site, zones in sorted(outputs.zones.items())
            },
            "web_identity": {
                "issuer": {"urls": dict(sorted(outputs.issuers.items()))},
                "roles": dict(sorted(outputs.roles.items())),
            },
            "tracking_database": {"address": outputs.tracking_database},
        },
        indent=1,
    )
    private(folders.state)
    fresh = folders.outputs.with_suffix(".new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        stream.write(text + "\n")
    fresh.replace(folders.outputs)
    return outputs


def recall(folders: Folders) -> Outputs:
    """The stored outputs; empty if nothing is applied. Raises ``DriveError`` for a damaged file."""
    try:
        return parse(json.loads(folders.outputs.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return NO_OUTPUTS
    except (ValueError, KeyError, TypeError, AttributeError, AddressValueError):
        raise DriveError(
            f"{folders.outputs} is damaged; `invoke outputs` reads it again from Terraform's state"
        ) from None


def forget(folders: Folders) -> None:
    """Delete the outputs: nothing is applied any more."""
    folders.outputs.unlink(missing_ok=True)
