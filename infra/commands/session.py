"""The target of a command: an account or the embedded AWS, with its secrets and an engine."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from infra.commands.environment import Environment, Project
from infra.errors import UsageError
from infra.model.names import tunnel_secret
from infra.resolve.lockfile import parse

if TYPE_CHECKING:
    from infra.drive.build_folders import Folders
    from infra.drive.lifecycle import Job
    from infra.drive.localaws import Server
    from infra.drive.secrets import Store
    from infra.drive.state_backends import Place
    from infra.model import Cluster

SECRETS: Final = Path(".secrets")
"""The folder of local secrets stores, beside ``environments/``."""


def embedded_folder(environment: Environment) -> Path:
    """The folder of an environment's embedded AWS."""
    return environment.build / "state" / "aws"


def state_file(environment: Environment) -> Path:
    """The path of a local Terraform state."""
    return environment.build / "state" / "terraform.tfstate"


NO_MACHINES: Final = "The embedded AWS has no machines"


def is_embedded(environment: Environment, cluster: Cluster) -> bool:
    """Whether the environment uses the embedded AWS."""
    return environment.rehearsed or cluster.aws.embedded


def credentials(environment: Environment, cluster: Cluster) -> dict[str, str]:
    """The environment variables for programs that use the cluster's cloud.

    Starts the embedded AWS if needed; raises ``LocalAwsError`` if its resources were lost.
    """
    if not is_embedded(environment, cluster):
        return {"AWS_PROFILE": cluster.aws.profile} if cluster.aws.profile else {}
    from infra.drive import localaws

    server = started(environment)
    localaws.check(server, state_file(environment), environment.options)
    return localaws.environment(server, cluster.regions[0].region if cluster.regions else localaws.REGION)


def started(environment: Environment) -> Server:
    """The embedded AWS of an environment, started if it is not running."""
    from infra.commands.terminal import note
    from infra.drive import localaws

    folder = embedded_folder(environment).absolute()
    server = localaws.status(folder)
    if server is None:
        server = localaws.start(folder, environment.name)
        end = f"invoke local.down {environment.options}"
        note(f"Started an embedded AWS on {server.address}; `{end}` stops it.")
    return server


def fetch_ledger(project: Project) -> None:
    """Fetch the ledger of applies by other clones to the same state."""
    from infra.drive import shared_last_applied

    shared_last_applied.fetch(_folders(project), place(project, _credentials(project)))


def place(project: Project, env: Mapping[str, str]) -> Place:
    """The state's location in the spec; ``env`` is the environment that Terraform gets."""
    from infra.drive.state_backends import place as find

    cluster = project.cluster
    return find(cluster.state, _folders(project), env, cluster.aws.account)


def _folders(project: Project) -> Folders:
    from infra.drive.build_folders import Folders

    return Folders(project.environment.build.absolute())


def _credentials(project: Project) -> dict[str, str]:
    """The environment of this process with the cloud's credentials. In an embedded AWS, the bucket of the
    state is created, as everything there is lost when it stops."""
    environment, cluster = project.environment, project.cluster
    seen = {**os.environ, **credentials(environment, cluster)}
    if is_embedded(environment, cluster) and cluster.state.kind == "s3":
        from infra.drive import bootstrap

        bootstrap.state_bucket(cluster, seen)
    return seen


def _require_moved(project: Project, env: Mapping[str, str]) -> None:
    """Raise ``UsageError`` while the state is at another location than the spec's."""
    from infra.drive.state_backends import previous

    environment, state = project.environment, project.cluster.state
    if state.kind == "local" and environment.rehearsed:
        return
    if old := previous(state, _folders(project), env):
        raise UsageError(
            f"the state is in {old}, and {environment.spec_file} says {place(project, env)}; "
            f"move it: invoke state.move {environment.options}"
        )


def secrets(project: Project, env: Mapping[str, str]) -> Store:
    """The environment's secrets store; ``env`` is the environment that Terraform gets."""
    from infra.drive.secrets import open_store

    environment, cluster = project.environment, project.cluster
    return open_store(cluster.secrets, environment.build.name, SECRETS.absolute(), env)


def forget_secrets(project: Project, env: Mapping[str, str]) -> None:
    """Delete secrets that the next apply recreates: the keys of all tunnels, and the password of MLflow's
    database. Tunnels between sites continue with their current keys until then."""
    from infra.drive.secrets import DATABASE

    store = secrets(project, env)
    for name in sorted({*_tunnel_secrets(project.cluster), DATABASE}):
        store.delete(name)


def forget_keys_of(project: Project, sites: Iterable[str], env: Mapping[str, str]) -> None:
    """Delete the tunnel keys of VPN connections to removed regions, which are in the lock file."""
    links = {
        owner.split("/")[1]
        for owner in parse(project.lock, str(project.environment.lock_file)).blocks
        if owner.startswith("links/")
    }
    # A site's second public address has its own link, with its number at the end.
    ending = re.compile(rf"-({'|'.join(map(re.escape, sites))})(-\d+)?$")
    names = {tunnel_secret(link, number) for link in links if ending.search(link) for number in (1, 2)}
    if unused := names - _tunnel_secrets(project.cluster):
        store = secrets(project, env)
        for name in sorted(unused):
            store.delete(name)


def _tunnel_secrets(cluster: Cluster) -> set[str]:
    names = {tunnel.secret for link in cluster.network.links for tunnel in link.tunnels}
    return names | {tunnel.secret for gateway in cluster.gateways for tunnel in gateway.tunnels}


def job(project: Project) -> Job:
    """The environment, ready for Terraform: rendered, with credentials and secrets in its environment."""
    from concurrent.futures import ThreadPoolExecutor

    from infra.drive.engine import find_engine

    with ThreadPoolExecutor(1) as beside:
        engine = beside.submit(find_engine)  # detecting its version takes a moment
        from infra.drive.lifecycle import Job
        from infra.drive.secrets import database_password, tunnel_keys

        environment, cluster = project.environment, project.cluster
        env = credentials(environment, cluster)
        seen = _credentials(project)
        _require_moved(project, seen)
        store = secrets(project, seen)
        env["TF_VAR_tunnel_keys"] = json.dumps(tunnel_keys(cluster, store))
        if cluster.tracking is not None and cluster.tracking.managed is not None:
            env["TF_VAR_tracking_password"] = database_password(store)
        return Job(
            environment=environment.name,
            build=environment.build,
            files=project.files,
            spec=project.meaning,
            engine=engine.result(),
            lock=project.lock,
            sites=modules(cluster),
            regions={region.name: region.region for region in cluster.regions}
            | {region.name: region.region for region in cluster.retired},
            env=env,
            place=place(project, seen) if cluster.state.kind == "s3" else None,
            options=environment.options,
        )


def modules(cluster: Cluster) -> dict[str, str]:
    """Module call in the root module → site."""
    calls = {region.key: region.name for region in cluster.regions}
    if cluster.network.interconnect == "transit-gateway":
        calls |= {f"transit_gateway_{region.key}": region.name for region in cluster.regions}
    if cluster.tracking is not None and cluster.tracking.managed is not None:
        calls["tracking_database"] = cluster.tracking.managed.site
    return calls | {region.key: region.name for region in cluster.retired}
