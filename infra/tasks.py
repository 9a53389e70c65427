"""The command line: each task by its name, options and help; what it does is in ``infra.commands``.

Heavy libraries are imported where they are used: `invoke --list` must answer at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from infra.commands import completion, mistyped

if TYPE_CHECKING:
    from infra.commands.environment import Environment, Project

Arguments = ParamSpec("Arguments")

ENV: Final = {
    "env": "the environment, a file in environments/ (default: INFRA_ENV, else local, else the only one)"
}
JSON: Final = {"json": "print the result as JSON"}
REHEARSE: Final = {"rehearse": "against the embedded AWS on this machine, whatever the spec says"}
DESTROY: Final = {"destroy": "the address of a stateful thing that may go; may be given several times"}


def reported(
    body: Callable[Concatenate[Context, Arguments], int],
) -> Callable[Concatenate[Context, Arguments], None]:
    """A task whose errors are told in words, and whose result is its exit code."""

    @wraps(body)
    def run(context: Context, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        from infra.commands.terminal import reported_errors

        with reported_errors():
            if code := body(context, *args, **kwargs):
                raise Exit(code=code)

    return run


def _find(env: str, rehearse: bool = False) -> Environment:
    from infra.commands.environment import find

    return find(env, rehearsed=rehearse)


def _load_project(env: str, rehearse: bool = False) -> Project:
    from infra.commands.environment import load_project

    return load_project(_find(env, rehearse), changeable=True)


# -- A repository -----------------------------------------------------------------------------------------


@task(
    help={
        "folder": "the repository's folder",
        "name": "of the lab and its environment; else the folder's",
    }
)
@reported
def new(_: Context, folder: str, name: str = "") -> int:
    """Make a lab's own repository; in one that is there, bring what belongs to the installed version.

    Files of the lab's own are written once and never again.

    Example: invoke new ../my-lab
    """
    from pathlib import Path

    from infra.commands import new as making

    return making.new(Path(folder), name)


# -- The spec ---------------------------------------------------------------------------------------------


@task(help={**ENV, **JSON})
@reported
def validate(_: Context, env: str = "", json: bool = False) -> int:
    """Check an environment's spec and report everything that is wrong with it.

    Example: invoke validate --env research
    """
    from infra.commands import show

    return show.validate(_find(env), json=json)


@task(
    help={**ENV, **JSON, "resolved": "every value, also inherited and default ones, and where it comes from"}
)
@reported
def spec(_: Context, env: str = "", resolved: bool = False, json: bool = False) -> int:
    """Print a spec as it is once all it extends is merged.

    Example: invoke spec --resolved --env research
    """
    from infra.commands import show

    return show.spec(_find(env), resolved=resolved, json=json)


@task
@reported
def schema(_: Context) -> int:
    """Print the JSON Schema of a spec, for completion and hover in editors.

    Example: invoke schema > environments/spec.schema.json
    """
    from infra.commands import reference

    return reference.schema()


@task(help={**ENV, **JSON})
@reported
def addresses(_: Context, env: str = "", json: bool = False) -> int:
    """Show the whole address plan as a tree. Nothing is written: `invoke plan` keeps new blocks.

    Example: invoke addresses --env research
    """
    from infra.commands import show

    return show.addresses(_find(env), json=json)


@task(
    iterable=["region"],
    help={
        **ENV,
        **JSON,
        "refresh": "ask AWS for its instance types, zones and what is offered in them",
        "region": "a region to ask, instead of the spec's; may be given several times",
        "client": "pin this release of CINC, or the newest of a line (18), as its makers publish it",
        "gpus": "list the models of GPUs, as a spec names them",
    },
)
@reported
def catalogue(
    _: Context,
    env: str = "",
    refresh: bool = False,
    region: Sequence[str] | None = None,
    client: str = "",
    gpus: bool = False,
    json: bool = False,
) -> int:
    """Show how old the catalogue of AWS facts is, or refresh it.

    Example: invoke catalogue --refresh --region us-west-2
    """
    from infra.commands import show

    return show.catalogue(
        _find(env), refresh=refresh, region=tuple(region or ()), client=client, list_gpus=gpus, json=json
    )


# -- From the spec to files -------------------------------------------------------------------------------


@task(help={**ENV, **JSON})
@reported
def render(_: Context, env: str = "", json: bool = False) -> int:
    """Render a spec into build/<env>/, and keep new addresses in its lock file.

    Example: invoke render --env research
    """
    from infra.commands import rendering

    return rendering.render(_find(env), json=json)


@task(help={**ENV, **JSON, **REHEARSE})
@reported
def diff(_: Context, env: str = "", json: bool = False, rehearse: bool = False) -> int:
    """Show what has changed in the rendered files since the last apply.

    Example: invoke diff --env research
    """
    from infra.commands import rendering

    return rendering.diff(_find(env, rehearse), json=json)


@task(help={**ENV, **REHEARSE, "open": "open the page in a browser"})
@reported
def topology(_: Context, env: str = "", rehearse: bool = False, open: bool = False) -> int:  # noqa: A002
    """Draw the whole cluster: one HTML page and an SVG. What a saved plan would change is marked.

    Example: invoke topology --env research
    """
    from infra.commands import rendering

    return rendering.topology(_find(env, rehearse), show=open)


@task(
    help={
        **ENV,
        **JSON,
        "all": "also the statements that this spec does not need, for roles that outlive edits",
    }
)
@reported
def iam(_: Context, env: str = "", all: bool = False, json: bool = False) -> int:  # noqa: A002
    """Write the IAM policies that an environment needs into build/<env>/iam/: to plan, to apply, to bake.

    Example: invoke iam --env research
    """
    from infra.commands import iam as policies

    return policies.iam(_find(env), every=all, json=json)


# -- From files to the world ------------------------------------------------------------------------------


@task(
    iterable=["only", "destroy"],
    help={
        **ENV,
        **JSON,
        **REHEARSE,
        **DESTROY,
        "only": "a site to narrow the plan to; may be given several times",
        "out": "copy Terraform's plan file there",
        "detailed-exitcode": "exit with 2 when there are changes",
    },
)
@reported
def plan(
    _: Context,
    env: str = "",
    only: Sequence[str] | None = None,
    destroy: Sequence[str] | None = None,
    out: str = "",
    json: bool = False,
    detailed_exitcode: bool = False,
    rehearse: bool = False,
) -> int:
    """Validate, render, and show what applying would change and cost. The plan is saved for `invoke apply`.

    Example: invoke plan --env research --only us-west-2
    """
    from infra.commands import planning

    where = _find(env, rehearse)
    code = planning.plan(where, only=only or (), named=destroy or (), out=out, json=json)
    return code if detailed_exitcode else 0


@task(
    iterable=["destroy"],
    help={**ENV, **REHEARSE, **DESTROY, "yes": "without a saved plan: plan, and apply without asking"},
)
@reported
def apply(
    _: Context,
    env: str = "",
    destroy: Sequence[str] | None = None,
    yes: bool = False,
    rehearse: bool = False,
) -> int:
    """Do exactly what the last saved plan says; without one, plan, show and ask.

    Example: invoke apply --env research
    """
    from infra.commands import planning

    return planning.apply(_find(env, rehearse), named=tuple(destroy or ()), yes=yes)


@task(help={**ENV, **REHEARSE, "confirm": "the environment's name, for where nobody can be asked"})
@reported
def destroy(_: Context, env: str = "", confirm: str = "", rehearse: bool = False) -> int:
    """Destroy everything of an environment, once its name was typed.

    Example: invoke destroy --env local
    """
    from infra.commands import planning

    return planning.destroy(_find(env, rehearse), confirm=confirm)


@task(help={**ENV, **JSON, **REHEARSE})
@reported
def outputs(_: Context, env: str = "", json: bool = False, rehearse: bool = False) -> int:
    """Print what AWS decided in the last apply: ids, addresses, tunnels, names.

    Example: invoke outputs --json | jq .vpn_connections
    """
    from infra.commands import operations

    return operations.outputs(_find(env, rehearse), json=json)


@task(help={**ENV, **JSON, **REHEARSE})
@reported
def drift(_: Context, env: str = "", json: bool = False, rehearse: bool = False) -> int:
    """Compare AWS with the state; exit code 2 when they differ.

    Example: invoke drift --env research
    """
    from infra.commands import operations

    return operations.drift(_find(env, rehearse), json=json)


@task(help={**ENV, **JSON, **REHEARSE})
@reported
def doctor(_: Context, env: str = "", json: bool = False, rehearse: bool = False) -> int:
    """Check the engine, provider, credentials, quotas and tools, and print the fix for each.

    Example: invoke doctor --env research
    """
    from infra.commands import operations

    return operations.doctor(_find(env, rehearse), json=json)


@task(help=ENV)
@reported
def bootstrap(_: Context, env: str = "") -> int:
    """Create the S3 bucket of the Terraform state if it does not exist, and close it to the public.

    Example: invoke bootstrap --env research
    """
    from infra.commands import operations

    return operations.bootstrap(_find(env))


@task(name="move", help=ENV)
@reported
def state_move(_: Context, env: str = "") -> int:
    """Move Terraform's state, and the record of the last apply, to the place that the spec's `state` says.

    Example: invoke state.move --env research
    """
    from infra.commands import states

    return states.move(_find(env))


# -- The embedded AWS -------------------------------------------------------------------------------------


@task(help={**ENV, **REHEARSE})
@reported
def up(_: Context, env: str = "", rehearse: bool = False) -> int:
    """Start the embedded AWS of an environment. `invoke plan` does it too.

    Example: invoke local.up
    """
    from infra.commands import embedded

    return embedded.up(_find(env, rehearse))


@task(help={**ENV, **REHEARSE})
@reported
def down(_: Context, env: str = "", rehearse: bool = False) -> int:
    """Stop the embedded AWS of an environment; its resources go with it.

    Example: invoke local.down
    """
    from infra.commands import embedded

    return embedded.down(_find(env, rehearse))


@task(help={**ENV, **REHEARSE})
@reported
def reset(_: Context, env: str = "", rehearse: bool = False) -> int:
    """Start over: stop the embedded AWS and put the state of its resources aside.

    Example: invoke local.reset
    """
    from infra.commands import embedded

    return embedded.reset(_find(env, rehearse))


@task(help={**ENV, **JSON, **REHEARSE})
@reported
def status(_: Context, env: str = "", json: bool = False, rehearse: bool = False) -> int:
    """Show whether the embedded AWS runs, where, and what it holds.

    Example: invoke local.status
    """
    from infra.commands import embedded

    return embedded.status(_find(env, rehearse), json=json)


# -- Machine images ----------------------------------------------------------------------------------------


@task(
    iterable=["image"],
    help={
        **ENV,
        **JSON,
        **REHEARSE,
        "image": "an image of the spec; may be given several times",
        "all": "every image of the spec",
        "dry-run": "tell what would be baked, and of what; change nothing",
        "on-demand": "no spot instance",
        "subnet": "of the build instance (default: a public one of the cluster, else of the default VPC)",
        "ssh-from": "the block that may reach it (default: our own public address)",
        "private": "it gets no public address; you reach its private one: --subnet, --ssh-from",
    },
)
@reported
def bake(
    _: Context,
    env: str = "",
    image: Sequence[str] | None = None,
    all: bool = False,  # noqa: A002
    dry_run: bool = False,
    on_demand: bool = False,
    subnet: str = "",
    ssh_from: str = "",
    private: bool = False,
    json: bool = False,
    rehearse: bool = False,
) -> int:
    """Bake images whose inputs changed, copy them to every region, and keep their ids in the lock file.

    Example: invoke bake --env research --image gpu
    """
    from infra.commands import images

    return images.bake(
        _load_project(env, rehearse),
        tuple(image or ()),
        everything=all,
        dry_run=dry_run,
        on_demand=on_demand,
        subnet=subnet,
        ssh_from=ssh_from,
        private=private,
        json=json,
    )


@task(
    name="list",
    default=True,
    help={
        **ENV,
        **JSON,
        **REHEARSE,
        "containers": "the container images that the cluster pulls, to mirror them",
        "sizes": "the same with digests and sizes, for which the registries are asked",
    },
)
@reported
def images_list(
    _: Context,
    env: str = "",
    containers: bool = False,
    sizes: bool = False,
    json: bool = False,
    rehearse: bool = False,
) -> int:
    """Show each image by region: its AMI, how old that and its base are, and who uses it.

    Example: invoke images --env research
    Example: invoke images --env research --containers --sizes --json
    """
    from infra.commands import images

    if containers or sizes:
        return images.containers(_load_project(env, rehearse), sizes=sizes, json=json)
    return images.listing(_load_project(env, rehearse), json=json)


@task(
    name="prune",
    help={
        **ENV,
        **JSON,
        **REHEARSE,
        "keep": "how many of each image's newest stay, used or not",
        "yes": "do it; without, it is only told",
    },
)
@reported
def images_prune(
    _: Context, env: str = "", keep: int = 2, yes: bool = False, json: bool = False, rehearse: bool = False
) -> int:
    """Remove AMIs and snapshots that no lock file, group, launch template or instance uses.

    Example: invoke images.prune --env research --keep 3
    """
    from infra.commands import images

    return images.prune(_load_project(env, rehearse), keep=keep, yes=yes, json=json)


@task(
    iterable=["region", "checkpoint"],
    help={
        **ENV,
        **JSON,
        **REHEARSE,
        "pool": "a pool of the spec",
        "region": "only there, an AWS site of the spec; may be given several times",
        "min-healthy": "percentage of the group that stays in service meanwhile",
        "max-healthy": "percentage that it may grow to meanwhile",
        "protected": "instances protected from scale-in, as ours are: refresh (drain and replace), wait or "
        "ignore",
        "checkpoint": "a percentage at which to pause for ten minutes; may be given several times",
        "cancel": "stop a refresh that is under way",
        "wait": "watch until it is over",
    },
)
@reported
def roll(
    _: Context,
    pool: str,
    env: str = "",
    region: Sequence[str] | None = None,
    min_healthy: int = 90,
    max_healthy: int = 110,
    protected: str = "refresh",
    checkpoint: Sequence[str] | None = None,
    cancel: bool = False,
    wait: bool = True,
    json: bool = False,
    rehearse: bool = False,
) -> int:
    """Replace a pool's instances with instances of the current launch template, drained, a few at a time.

    Example: invoke roll --env research --pool gpu-p3 --region us-west-2
    """
    from infra.commands import images

    return images.roll(
        _load_project(env, rehearse),
        pool,
        tuple(region or ()),
        min_healthy=min_healthy,
        max_healthy=max_healthy,
        protected=protected,
        checkpoints=[int(each) if each.isdecimal() else 0 for each in checkpoint or ()],
        cancel=cancel,
        wait=wait,
        json=json,
    )


# -- Machines with a name of their own ---------------------------------------------------------------------

MACHINES: Final = {
    "site": "a site",
    "nodes": "only these machines, titan-01 or titan-*; may be given several times",
}


@task(
    iterable=["nodes"],
    help={
        **ENV,
        **JSON,
        **MACHINES,
        "all": "every physical node of every site",
        "why_run": "only say what would change",
        "at_once": "how many machines at a time",
    },
)
@reported
def converge(
    _: Context,
    env: str = "",
    site: str = "",
    nodes: Sequence[str] | None = None,
    all: bool = False,  # noqa: A002 - the option's name
    why_run: bool = False,
    at_once: int = 8,
    json: bool = False,
) -> int:
    """Bring machines in line with the spec, in racks and regions: cookbooks over rsync, then Chef, over SSH.

    Example: invoke converge --env research --site rack-a --nodes titan-a01 --why-run
    """
    from infra.commands.machines import converging

    return converging.converge(
        _load_project(env),
        site,
        tuple(nodes or ()),
        everything=all,
        why_run=why_run,
        at_once=at_once,
        json=json,
    )


@task(iterable=["nodes"], help={**ENV, **JSON, **MACHINES})
@reported
def nodes(
    _: Context, env: str = "", site: str = "", nodes: Sequence[str] | None = None, json: bool = False
) -> int:
    """Show named machines: last converge, drift, versions, GPUs; exit code 1 if any is unhealthy.

    Example: invoke nodes --env research --site rack-a
    """
    from infra.commands.machines import status

    return status.nodes(_load_project(env), site, tuple(nodes or ()), json=json)


@task(
    iterable=["nodes"],
    help={
        **ENV,
        **MACHINES,
        "login": "the account that a bare machine has, and its address where DNS does not know it: "
        "ubuntu@10.200.0.11",
        "fingerprint": "its host key's SHA256 fingerprint, where nobody can be asked",
        "force": "also a machine that is not the one the spec means",
        "converge": "converge it at once",
    },
)
@reported
def enroll(
    _: Context,
    env: str = "",
    site: str = "",
    nodes: Sequence[str] | None = None,
    login: str = "",
    fingerprint: str = "",
    force: bool = False,
    converge: bool = False,
) -> int:
    """Onboard a bare machine: remember its host key, compare it with the spec, install what a converge needs.

    Example: invoke enroll --env research --nodes titan-a01 --login ubuntu@10.200.0.11 --converge
    """
    from infra.commands.machines import enrolling

    return enrolling.enroll(
        _load_project(env),
        site,
        tuple(nodes or ()),
        login=login,
        fingerprint=fingerprint,
        force=force,
        then_converge=converge,
    )


# -- The private network: tunnels between sites ------------------------------------------------------------


@task(
    name="push",
    iterable=["site"],
    help={**ENV, **JSON, **REHEARSE, "site": "only its machines; may be given several times"},
)
@reported
def vpn_push(
    _: Context, env: str = "", site: Sequence[str] | None = None, json: bool = False, rehearse: bool = False
) -> int:
    """Bring configurations, keys and certificates to gateways and VPN servers, over SSH.

    Example: invoke vpn.push --env research --site rack-a
    """
    from infra.commands.vpn import gateway_files

    return gateway_files.push(_load_project(env, rehearse), tuple(site or ()), json=json)


@task(name="status", help={**ENV, **JSON, **REHEARSE})
@reported
def vpn_status(_: Context, env: str = "", json: bool = False, rehearse: bool = False) -> int:
    """Show tunnels from both ends, VPN servers and WireGuard's devices; exit code 1 when one is down.

    Example: invoke vpn.status --env research
    """
    from infra.commands.vpn import tunnels

    return tunnels.status(_load_project(env, rehearse), json=json)


@task(name="rotate", help={**ENV, "site": "the physical site whose tunnels get new keys"})
@reported
def vpn_rotate(_: Context, env: str = "", site: str = "") -> int:
    """Give a site's tunnels new keys, one tunnel at a time, without losing traffic.

    Example: invoke vpn.rotate --env research --site rack-a
    """
    from infra.commands.vpn import tunnels

    return tunnels.rotate(_load_project(env), site)


@task(
    name="maintain",
    help={
        **ENV,
        **JSON,
        **REHEARSE,
        "site": "the physical site whose tunnels are maintained",
        "tunnel": "only this one, by its name in vpn.status (default: all to AWS)",
        "plan": "list what is pending; change nothing",
    },
)
@reported
def vpn_maintain(
    _: Context,
    env: str = "",
    site: str = "",
    tunnel: str = "",
    plan: bool = False,
    json: bool = False,
    rehearse: bool = False,
) -> int:
    """Apply AWS's pending maintenance of tunnel endpoints, one tunnel at a time, without losing traffic.

    Example: invoke vpn.maintain --env research --site rack-a --plan
    """
    from infra.commands.vpn import upkeep

    return upkeep.maintain(_load_project(env, rehearse), site, tunnel, plan=plan, json=json)


# -- The private network: laptops --------------------------------------------------------------------------


@task(name="init", help={**ENV, **REHEARSE})
@reported
def vpn_init(_: Context, env: str = "", rehearse: bool = False) -> int:
    """Make the certificate authority of laptops and their servers; asks for a passphrase.

    Example: invoke vpn.init --env research
    """
    from infra.commands.vpn import people

    return people.init(_load_project(env, rehearse))


@task(
    name="profile",
    help={
        **ENV,
        **JSON,
        **REHEARSE,
        "user": "a login name of the spec",
        "device": "a second device of the user's, by any name: phone",
        "csr": "OpenVPN: a signing request to answer, of a key that stays on the laptop",
        "home": "the network the laptop is in, such as 192.168.1.0/24: clashes are told",
        "out": "the file to write (default: below build/<env>/profiles)",
        "kind": "openvpn or wireguard (default: the first of access.vpn.kinds)",
        "server": "WireGuard: only for this site's server (default: a file for each, the code for the first)",
        "public-key": "WireGuard: the public key that the device made, so that no private one leaves it",
        "qr": "WireGuard: also show the profile as a QR code, for a phone",
        "push": "WireGuard: the servers are told at once",
    },
)
@reported
def vpn_profile(
    _: Context,
    user: str,
    env: str = "",
    device: str = "",
    csr: str = "",
    home: str = "",
    out: str = "",
    kind: str = "",
    server: str = "",
    public_key: str = "",
    qr: bool = False,
    push: bool = True,
    json: bool = False,
    rehearse: bool = False,
) -> int:
    """Write a user's VPN profile: what every OpenVPN client, NetworkManager, or every WireGuard app imports.

    Example: invoke vpn.profile --env research --user ada --device phone --kind wireguard --qr
    """
    from infra.commands.vpn import devices, people

    project = _load_project(env, rehearse)
    if devices.meant(project, kind, server, public_key, qr=qr, csr=csr) == "wireguard":
        return devices.profile(
            project,
            user,
            device=device,
            home=home,
            site=server,
            public_key=public_key,
            qr=qr,
            out=out,
            push=push,
            json=json,
        )
    return people.profile(project, user, device=device, csr=csr, home=home, out=out, json=json)


@task(name="profiles", help={**ENV, **JSON, **REHEARSE, "all": "everybody's, also of who has one"})
@reported
def vpn_profiles(
    _: Context,
    env: str = "",
    all: bool = False,  # noqa: A002
    json: bool = False,
    rehearse: bool = False,
) -> int:
    """Write the profiles of all users who have none yet, or of everybody.

    Example: invoke vpn.profiles --env research --all
    """
    from infra.commands.vpn import people

    return people.profiles(_load_project(env, rehearse), everybody=all, json=json)


@task(name="list", help={**ENV, **JSON, **REHEARSE})
@reported
def vpn_list(_: Context, env: str = "", json: bool = False, rehearse: bool = False) -> int:
    """List certificates and WireGuard devices: their users, expiry dates and status.

    Example: invoke vpn.list --env research
    """
    from infra.commands.vpn import people

    return people.listing(_load_project(env, rehearse), json=json)


@task(
    name="revoke",
    help={
        **ENV,
        **JSON,
        **REHEARSE,
        "user": "whose certificates and WireGuard devices",
        "device": "only this device's (first: the user's first)",
        "reason": "as RFC 5280 has it: keyCompromise, cessationOfOperation…",
        "push": "tell the servers at once, and cut the user's connections",
    },
)
@reported
def vpn_revoke(
    _: Context,
    user: str,
    env: str = "",
    device: str = "",
    reason: str = "unspecified",
    push: bool = True,
    json: bool = False,
    rehearse: bool = False,
) -> int:
    """Revoke a user's certificates and devices, update every server, and cut the user's connections.

    Example: invoke vpn.revoke --env research --user ada
    """
    from infra.commands.vpn import people

    only = None if not device else "" if device == "first" else device
    return people.revoke(_load_project(env, rehearse), user, device=only, reason=reason, push=push, json=json)


@task(
    name="renew",
    help={
        **ENV,
        **JSON,
        **REHEARSE,
        "user": "whose certificate; all that ends soon without",
        "device": "of which device (default: the first)",
        "revoke": "the old one is revoked at once, for a key that was lost",
        "authority": "a new intermediate authority; asks for the root's passphrase",
    },
)
@reported
def vpn_renew(
    _: Context,
    env: str = "",
    user: str = "",
    device: str = "",
    revoke: bool = False,
    authority: bool = False,
    json: bool = False,
    rehearse: bool = False,
) -> int:
    """Renew what ends soon, one user's certificate, or the authority that issues.

    Example: invoke vpn.renew --env research --user ada
    """
    from infra.commands.vpn import people

    return people.renew(
        _load_project(env, rehearse),
        user=user,
        device=device,
        authority=authority,
        revoke_old=revoke,
        json=json,
    )


@task(name="import", help={**ENV, "folder": "easy-rsa's pki folder, with ca.crt and index.txt"})
@reported
def vpn_import(_: Context, folder: str, env: str = "") -> int:
    """Take over an easy-rsa PKI: its authority becomes ours, and its profiles go on working.

    Example: invoke vpn.import --env research --folder /etc/openvpn/easy-rsa/pki
    """
    from infra.commands.vpn import people

    return people.take_over(_load_project(env), folder)


@task(name="backup", help={**ENV, "out": "the file to write (default: <env>.pki)"})
@reported
def vpn_backup(_: Context, env: str = "", out: str = "") -> int:
    """Write the whole PKI into one file that a passphrase seals.

    Example: invoke vpn.backup --env research --out research.pki
    """
    from infra.commands.vpn import people

    return people.backup(_load_project(env), out)


@task(
    name="restore",
    help={**ENV, "file": "a file that vpn.backup wrote", "replace": "also over a PKI of another root"},
)
@reported
def vpn_restore(_: Context, file: str, env: str = "", replace: bool = False) -> int:
    """Put a backup of the PKI back; what was issued or revoked since stays.

    Example: invoke vpn.restore --env research --file research.pki
    """
    from infra.commands.vpn import people

    return people.restore(_load_project(env), file, replace=replace)


# -- The Kubernetes cluster -------------------------------------------------------------------------------


@task(
    name="up",
    iterable=["destroy"],
    help={
        **ENV,
        **JSON,
        "plan": "only say what would be done",
        "destroy": "what holds people's work, is no longer rendered, and may go: Namespace/user-ada; may be "
        "given several times",
        "at_once": "how many workers converge at a time",
        **REHEARSE,
    },
)
@reported
def cluster_up(
    _: Context,
    env: str = "",
    plan: bool = False,
    destroy: Sequence[str] | None = None,
    at_once: int = 8,
    json: bool = False,
    rehearse: bool = False,
) -> int:
    """Create the cluster, or bring all of it in line with the spec; run again to continue.

    Example: invoke cluster.up --env research --plan
    """
    from infra.commands.cluster import up

    return up.up(
        _load_project(env, rehearse), plan=plan, destroy=tuple(destroy or ()), at_once=at_once, json=json
    )


@task(name="status", help={**ENV, **JSON, **REHEARSE})
@reported
def cluster_status(_: Context, env: str = "", json: bool = False, rehearse: bool = False) -> int:
    """Show masters, etcd, nodes, GPUs, add-ons, certificates; exit code 1 if any is unhealthy.

    Example: invoke cluster.status --env research
    """
    from infra.commands.cluster import status

    return status.status(_load_project(env, rehearse), json=json)


@task(
    name="upgrade",
    help={
        **ENV,
        **JSON,
        "to": "the minor, as the spec has it: 1.37",
        "plan": "only say what would be done, and what stands in the way",
        "yes": "without asking",
        "pools": "pools in the cloud too, by an instance refresh each",
        "force": "although something stands in the way",
        "gate": "seconds that the cluster has after each step until it is as well as before",
    },
)
@reported
def cluster_upgrade(
    _: Context,
    to: str = "",
    env: str = "",
    plan: bool = False,
    yes: bool = False,
    pools: bool = True,
    force: bool = False,
    gate: int = 300,
    json: bool = False,
) -> int:
    """Bring the cluster to the spec's release, one machine at a time; stop when it is unhealthy.

    Example: invoke cluster.upgrade --env research --to 1.37 --plan
    """
    from infra.commands.cluster import upgrade

    return upgrade.upgrade(
        _load_project(env), to, plan=plan, yes=yes, pools=pools, force=force, gate=gate, json=json
    )


@task(
    name="add-node",
    positional=["node"],
    help={
        **ENV,
        **JSON,
        "node": "a machine of the spec",
        "login": "the account that a bare machine has, and its address where DNS does not know it",
        "fingerprint": "its host key's SHA256 fingerprint, where nobody can be asked",
    },
)
@reported
def cluster_add_node(
    _: Context, node: str, env: str = "", login: str = "", fingerprint: str = "", json: bool = False
) -> int:
    """Make a machine a node: enroll it, converge it, wait until it is ready.

    Example: invoke cluster.add-node titan-a01 --env research --login ubuntu@10.200.0.11
    """
    from infra.commands.cluster import nodes

    return nodes.add(_load_project(env), node, login=login, fingerprint=fingerprint, json=json)


@task(
    name="drain",
    positional=["node"],
    help={
        **ENV,
        **JSON,
        "node": "a node of the cluster",
        "undo": "let it take pods again",
        "out_of_service": "its machine is off: delete its pods without it, and detach their volumes",
        "yes": "without asking",
        "timeout": "seconds that pods have to leave, budgets included",
        "grace": "seconds that each pod has to end (default: as it says itself)",
        "force": "also pods that no controller brings back: they are lost",
        "ignore_budgets": "past pod disruption budgets: what they guard may be down",
    },
)
@reported
def cluster_drain(
    _: Context,
    node: str,
    env: str = "",
    undo: bool = False,
    out_of_service: bool = False,
    yes: bool = False,
    timeout: int = 900,
    grace: int = -1,
    force: bool = False,
    ignore_budgets: bool = False,
    json: bool = False,
) -> int:
    """Empty a node of its pods, by eviction, and keep new ones away.

    Example: invoke cluster.drain titan-a01 --env research
    """
    from infra.commands.cluster import nodes

    return nodes.drain(
        _load_project(env),
        node,
        undo=undo,
        out_of_service=out_of_service,
        yes=yes,
        timeout=timeout,
        grace=grace,
        force=force,
        ignore_budgets=ignore_budgets,
        json=json,
    )


@task(
    name="remove",
    positional=["node"],
    help={
        **ENV,
        **JSON,
        "node": "a node of the cluster, or a master",
        "yes": "without asking",
        "timeout": "seconds that pods have to leave",
        "force": "also pods that no controller brings back: they are lost",
        "lost": "the machine is gone: nothing is drained",
    },
)
@reported
def cluster_remove(
    _: Context,
    node: str,
    env: str = "",
    yes: bool = False,
    timeout: int = 900,
    force: bool = False,
    lost: bool = False,
    json: bool = False,
) -> int:
    """Take a node out of the cluster: drained, reset, forgotten; a master leaves etcd too.

    Example: invoke cluster.remove titan-a01 --env research
    """
    from infra.commands.cluster import nodes

    return nodes.remove(_load_project(env), node, yes=yes, timeout=timeout, force=force, lost=lost, json=json)


@task(
    name="restore",
    iterable=["lost"],
    help={
        **ENV,
        **JSON,
        "snapshot": "a copy's name, as it is shown without one",
        "latest": "the newest copy",
        "yes": "without asking",
        "lost": "a master that is gone for good; may be given several times",
    },
)
@reported
def cluster_restore(
    _: Context,
    env: str = "",
    snapshot: str = "",
    latest: bool = False,
    yes: bool = False,
    lost: Sequence[str] | None = None,
    json: bool = False,
) -> int:
    """Put etcd back as it was when a copy was taken, on all masters. Without a copy's name, show them.

    Example: invoke cluster.restore --env research --latest
    """
    from infra.commands.cluster import restore

    return restore.restore(
        _load_project(env),
        snapshot,
        latest=latest,
        yes=yes,
        lost=tuple(lost or ()),
        json=json,
    )


@task(name="rotate-encryption", help={**ENV, **JSON, "yes": "without asking"})
@reported
def cluster_rotate_encryption(_: Context, env: str = "", yes: bool = False, json: bool = False) -> int:
    """Encrypt the cluster's secrets at rest with another key, and forget the one before.

    Example: invoke cluster.rotate-encryption --env research
    """
    from infra.commands.cluster import rotating

    return rotating.rotate(_load_project(env), yes=yes, json=json)


@task(name="rotate-signing-key", help={**ENV, **JSON, "yes": "without asking"})
@reported
def cluster_rotate_signing_key(_: Context, env: str = "", yes: bool = False, json: bool = False) -> int:
    """Sign tokens of service accounts with another key; a day later, run again, forget the one before.

    Example: invoke cluster.rotate-signing-key --env research
    """
    from infra.commands.cluster import signing

    return signing.rotate(_load_project(env), yes=yes, json=json)


@task(name="change-issuer", help={**ENV, **JSON, "yes": "without asking"})
@reported
def cluster_change_issuer(_: Context, env: str = "", yes: bool = False, json: bool = False) -> int:
    """Sign tokens of service accounts as the spec's first issuer; a day later, run again, forget old ones.

    Example: invoke cluster.change-issuer --env research
    """
    from infra.commands.cluster import issuers

    return issuers.change(_load_project(env), yes=yes, json=json)


@task(
    name="write",
    default=True,
    help={
        **ENV,
        **JSON,
        "user": "a login name of the spec",
        "hours": "how long the certificate lasts",
        "exec": "no certificate, but a command that gets one; for engineers who may be root on a master",
        "certificate": "a certificate, also where the spec has single sign-on (access.oidc)",
        "out": "the file to write (default: build/<env>/kubeconfigs/<user>.yaml)",
    },
)
@reported
def kubeconfig_write(
    _: Context,
    user: str,
    env: str = "",
    hours: int = 12,
    exec: bool = False,  # noqa: A002 - the option's name
    certificate: bool = False,
    out: str = "",
    json: bool = False,
) -> int:
    """Write a user's kubeconfig: single sign-on, a certificate for half a day, or a command that gets one.

    Example: invoke kubeconfig --env research --user ada
    """
    from infra.commands.cluster import credentials

    return credentials.kubeconfig(
        _load_project(env),
        user,
        hours=hours,
        by_exec=exec,
        certificate=certificate,
        out=out,
        json=json,
    )


@task(name="credential", help={**ENV, "user": "a login name of the spec"})
@reported
def kubeconfig_credential(_: Context, user: str, env: str = "") -> int:
    """Print a certificate as kubectl asks for it (ExecCredential); what `kubeconfig --exec` refers to.

    Example: invoke kubeconfig.credential --env research --user ada
    """
    from infra.commands.cluster import credentials

    return credentials.credential(_load_project(env), user)


# -- Node pools -------------------------------------------------------------------------------------------


@task(
    name="drain",
    iterable=["site"],
    help={
        **ENV,
        **JSON,
        **REHEARSE,
        "pool": "a pool of the spec, or one that was taken out of it and still has instances",
        "site": "only in this site; may be given several times",
        "zone": "only in this availability zone, before it is taken from a site's zones",
        "evict": "evict pods now, within their budgets, instead of waiting until they end",
        "timeout": "with --evict: seconds that the pods of a node have to leave",
        "yes": "without asking",
    },
)
@reported
def pool_drain(
    _: Context,
    pool: str,
    env: str = "",
    site: Sequence[str] | None = None,
    zone: str = "",
    evict: bool = False,
    timeout: int = 900,
    yes: bool = False,
    json: bool = False,
    rehearse: bool = False,
) -> int:
    """Empty a pool before it is removed: no new nodes, and each node ends once no pod works on it.

    Example: invoke pool.drain --env research --pool gpu-p3
    """
    from infra.commands import pools

    return pools.drain(
        _load_project(env, rehearse),
        pool,
        tuple(site or ()),
        zone=zone,
        evict=evict,
        timeout=timeout,
        yes=yes,
        json=json,
    )


# -- The autoscaler ---------------------------------------------------------------------------------------


@task(name="status", help={**ENV, **JSON})
@reported
def autoscaler_status(_: Context, env: str = "", json: bool = False) -> int:
    """Show whether the autoscaler works, groups in back-off, nodes that are ending; exit code 1 if unhealthy.

    Example: invoke autoscaler.status --env research
    """
    from infra.commands.autoscaler import status

    return status.status(_load_project(env), json=json)


@task(
    name="explain",
    help={
        **ENV,
        **JSON,
        **REHEARSE,
        "pod": "as namespace/name; without it, all that wait",
        "file": "a manifest of Pods and Jobs: what would be done for them, in an otherwise idle cluster",
    },
)
@reported
def autoscaler_explain(
    _: Context, pod: str = "", file: str = "", env: str = "", json: bool = False, rehearse: bool = False
) -> int:
    """Explain why a pod waits, group by group, and what the autoscaler would do now. Nothing is written.

    Example: invoke autoscaler.explain --pod user-ada/train-0 --env research
    """
    from infra.commands.autoscaler import explaining

    return explaining.explain(_load_project(env, rehearse), pod, file=file, json=json)


@task(
    name="simulate",
    help={
        **ENV,
        **JSON,
        "trace": "a file of jobs, JSON lines (default: a story that ships, with pools of its own)",
        "plot": "write a plot, too: a file that ends in .svg, .png or .pdf",
        "days": "only so many of the trace's first days",
    },
)
@reported
def autoscaler_simulate(
    _: Context, trace: str = "", plot: str = "", days: str = "", env: str = "", json: bool = False
) -> int:
    """Show what a trace of jobs would have waited and cost with an environment's pools.

    Example: invoke autoscaler.simulate --trace t.jsonl --plot week.svg --env research
    """
    from infra.commands.autoscaler import simulating

    return simulating.simulate(_load_project(env), trace, plot=plot, days=days, json=json)


@task(name="secret", positional=["way"], help={**ENV, "way": "slack, its token; or webhook, its address"})
@reported
def autoscaler_secret(_: Context, way: str, env: str = "") -> int:
    """Keep the Slack token or the webhook's address that notices need; it is asked for, or piped in.

    Example: invoke autoscaler.secret slack --env research
    """
    from infra.commands.autoscaler import secrets

    return secrets.keep(_load_project(env), way)


@task(
    name="tracking-backup",
    help={
        **ENV,
        **JSON,
        "file": "where the copy goes, of a database in a pod; by default a new file here",
        "snapshots": "show those that RDS has",
    },
)
@reported
def cluster_tracking_backup(
    _: Context, env: str = "", file: str = "", snapshots: bool = False, json: bool = False
) -> int:
    """Copy MLflow's database: into a file where it runs in a pod, as a snapshot at RDS.

    Example: invoke cluster.tracking-backup --env research
    """
    from infra.commands.cluster import tracking

    return tracking.backup(_load_project(env), file, listed=snapshots, json=json)


@task(
    name="tracking-restore",
    help={**ENV, **JSON, "file": "a copy that cluster.tracking-backup made", "yes": "without asking"},
)
@reported
def cluster_tracking_restore(
    _: Context, file: str, env: str = "", yes: bool = False, json: bool = False
) -> int:
    """Put a copy of MLflow's database back, and start its servers anew.

    Example: invoke cluster.tracking-restore --env research --file research-mlflow-20261127-0300.dump
    """
    from infra.commands.cluster import tracking

    return tracking.restore(_load_project(env), file, yes=yes, json=json)


namespace = Collection(
    new,
    validate, spec, schema, addresses, catalogue,
    render, diff, topology, iam,
    plan, apply, destroy, outputs, drift, doctor, bootstrap,
    bake, roll,
    converge, nodes, enroll,
    images=Collection(images_list, images_prune),
    state=Collection(state_move),
    local=Collection(up, down, reset, status),
    cluster=Collection(
        cluster_up, cluster_status, cluster_upgrade,
        cluster_add_node, cluster_drain, cluster_remove, cluster_restore,
        cluster_rotate_encryption, cluster_rotate_signing_key, cluster_change_issuer,
        cluster_tracking_backup, cluster_tracking_restore,
    ),
    kubeconfig=Collection(kubeconfig_write, kubeconfig_credential),
    pool=Collection(pool_drain),
    autoscaler=Collection(autoscaler_status, autoscaler_explain, autoscaler_simulate, autoscaler_secret),
    vpn=Collection(
        vpn_push, vpn_status, vpn_rotate, vpn_maintain,
        vpn_init, vpn_profile, vpn_profiles, vpn_list, vpn_revoke, vpn_renew,
        vpn_import, vpn_backup, vpn_restore,
    ),
)  # fmt: skip

# invoke's error for a word that it does not know, and to a shell that asks what may come next.
mistyped.install()
completion.install()
