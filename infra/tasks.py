"""The command line: each task by its name, options and help; what it does is in ``infra.commands``.

Heavy libraries are imported where they are used: `invoke --list` must answer at once.
"""

from typing import Annotated, TypeAlias

from infra.commands import completion, mistyped
from infra.commands.declaring import Env, Json, Rehearse, Several, command
from infra.commands.declaring import namespace as namespace

Yes: TypeAlias = Annotated[bool, "without asking"]
Destroy: TypeAlias = Annotated[Several, "the address of a stateful thing that may go"]
Nodes: TypeAlias = Annotated[Several, "only these machines, titan-01 or titan-*"]

# -- A repository -----------------------------------------------------------------------------------------


@command("new", "new:new")
def new(
    folder: Annotated[str, "the repository's folder"],
    name: Annotated[str, "of the lab and its environment; else the folder's"] = "",
) -> None:
    """Create a lab's own repository; in an existing one, update the files of the installed version.

    Files of the lab's own are written once and never again.

    Example: invoke new ../my-lab
    """


# -- The spec ---------------------------------------------------------------------------------------------


@command("validate", "show:validate")
def validate(env: Env = "", json: Json = False) -> None:
    """Check an environment's spec and report everything that is wrong with it.

    Example: invoke validate --env research
    """


@command("spec", "show:spec")
def spec(
    env: Env = "",
    resolved: Annotated[
        bool, "every value, also inherited and default ones, and where it comes from"
    ] = False,
    json: Json = False,
) -> None:
    """Print a spec with everything that it extends merged in.

    Example: invoke spec --resolved --env research
    """


@command("schema", "reference:schema")
def schema() -> None:
    """Print the JSON Schema of a spec, for completion and hover in editors.

    Example: invoke schema > environments/spec.schema.json
    """


@command("addresses", "show:addresses")
def addresses(env: Env = "", json: Json = False) -> None:
    """Show the whole address plan as a tree. Nothing is written: `invoke plan` keeps new blocks.

    Example: invoke addresses --env research
    """


@command("catalogue", "show:catalogue", parameters={"gpus": "list_gpus"})
def catalogue(
    env: Env = "",
    refresh: Annotated[bool, "ask AWS for its instance types, zones and what is offered in them"] = False,
    region: Annotated[Several, "a region to ask, instead of the spec's"] = (),
    client: Annotated[
        str, "pin this release of CINC, or the newest of a line (18), as its makers publish it"
    ] = "",
    gpus: Annotated[bool, "list the models of GPUs, as a spec names them"] = False,
    json: Json = False,
) -> None:
    """Show how old the catalogue of AWS facts is, or refresh it.

    Example: invoke catalogue --refresh --region us-west-2
    """


# -- From the spec to files -------------------------------------------------------------------------------


@command("render", "rendering:render")
def render(env: Env = "", json: Json = False) -> None:
    """Render a spec into build/<env>/, and keep new addresses in its lock file.

    Example: invoke render --env research
    """


@command("diff", "rendering:diff")
def diff(env: Env = "", json: Json = False, rehearse: Rehearse = False) -> None:
    """Show what has changed in the rendered files since the last apply.

    Example: invoke diff --env research
    """


@command("topology", "rendering:topology", parameters={"open": "show"})
def topology(
    env: Env = "", rehearse: Rehearse = False, open: Annotated[bool, "open the page in a browser"] = False
) -> None:
    """Draw the whole cluster: one HTML page and an SVG. What a saved plan would change is marked.

    Graphviz draws it: `apt install graphviz`. Without it the graph is in topology.dot.

    Example: invoke topology --env research
    """


@command("iam", "iam:iam", parameters={"all": "every"})
def iam(
    env: Env = "",
    all: Annotated[
        bool, "also the statements that this spec does not need, for roles that outlive edits"
    ] = False,
    json: Json = False,
) -> None:
    """Write the IAM policies that an environment needs into build/<env>/iam/: to plan, to apply, to bake.

    Example: invoke iam --env research
    """


# -- From files to the world ------------------------------------------------------------------------------


@command("plan", "planning:plan", parameters={"destroy": "named"})
def plan(
    env: Env = "",
    only: Annotated[Several, "a site to narrow the plan to"] = (),
    destroy: Destroy = (),
    out: Annotated[str, "copy Terraform's plan file there"] = "",
    json: Json = False,
    detailed_exitcode: Annotated[bool, "exit with 2 when there are changes"] = False,
    rehearse: Rehearse = False,
) -> None:
    """Validate, render, and show what applying would change and cost. The plan is saved for `invoke apply`.

    Example: invoke plan --env research --only us-west-2
    """


@command("upgrade", "upgrading:upgrade")
def upgrade(
    env: Env = "",
    json: Json = False,
    detailed_exitcode: Annotated[bool, "exit with 2 when there is something to do"] = False,
    rehearse: Rehearse = False,
) -> None:
    """Show what the installed version would change since the last apply, and the commands in their order.

    Example: invoke upgrade --env research
    """


@command("apply", "planning:apply", parameters={"destroy": "named"})
def apply(
    env: Env = "",
    destroy: Destroy = (),
    yes: Annotated[bool, "without a saved plan: plan, and apply without asking"] = False,
    rehearse: Rehearse = False,
) -> None:
    """Apply exactly the last saved plan; without one, plan, show it and ask.

    Example: invoke apply --env research
    """


@command("destroy", "planning:destroy")
def destroy(
    env: Env = "",
    confirm: Annotated[str, "the environment's name, to confirm without a terminal"] = "",
    rehearse: Rehearse = False,
) -> None:
    """Destroy everything in an environment, after its name has been typed.

    Example: invoke destroy --env local
    """


@command("outputs", "operations:outputs")
def outputs(env: Env = "", json: Json = False, rehearse: Rehearse = False) -> None:
    """Print values that AWS assigned in the last apply: ids, addresses, tunnels, names.

    Example: invoke outputs --json | jq .vpn_connections
    """


@command("drift", "operations:drift")
def drift(env: Env = "", json: Json = False, rehearse: Rehearse = False) -> None:
    """Compare AWS with the state; exit code 2 when they differ.

    Example: invoke drift --env research
    """


@command("doctor", "operations:doctor")
def doctor(env: Env = "", json: Json = False, rehearse: Rehearse = False) -> None:
    """Check the engine, provider, credentials, quotas and tools, and print the fix for each.

    Example: invoke doctor --env research
    """


@command("bootstrap", "operations:bootstrap")
def bootstrap(env: Env = "") -> None:
    """Create the S3 bucket of the Terraform state if it does not exist, and close it to the public.

    Example: invoke bootstrap --env research
    """


@command("state.move", "states:move")
def state_move(env: Env = "") -> None:
    """Move Terraform's state, and the record of the last apply, to the place that the spec's `state` says.

    Example: invoke state.move --env research
    """


# -- The embedded AWS -------------------------------------------------------------------------------------


@command("local.up", "embedded:up")
def local_up(env: Env = "", rehearse: Rehearse = False) -> None:
    """Start the embedded AWS of an environment. `invoke plan` does it too.

    Example: invoke local.up
    """


@command("local.down", "embedded:down")
def local_down(env: Env = "", rehearse: Rehearse = False) -> None:
    """Stop the embedded AWS of an environment; its resources are lost.

    Example: invoke local.down
    """


@command("local.reset", "embedded:reset")
def local_reset(env: Env = "", rehearse: Rehearse = False) -> None:
    """Start over: stop the embedded AWS and set aside the state of its resources.

    Example: invoke local.reset
    """


@command("local.status", "embedded:status")
def local_status(env: Env = "", json: Json = False, rehearse: Rehearse = False) -> None:
    """Show whether the embedded AWS is running, where, and its resources.

    Example: invoke local.status
    """


# -- Machine images ----------------------------------------------------------------------------------------


@command("bake", "images:bake", parameters={"all": "everything", "image": "names"})
def bake(
    env: Env = "",
    image: Annotated[Several, "an image of the spec"] = (),
    all: Annotated[bool, "every image of the spec"] = False,
    dry_run: Annotated[bool, "show what would be baked, and from what; change nothing"] = False,
    on_demand: Annotated[bool, "no spot instance"] = False,
    subnet: Annotated[
        str, "of the build instance (default: a public one of the cluster, else of the default VPC)"
    ] = "",
    ssh_from: Annotated[str, "the block that may reach it (default: our own public address)"] = "",
    private: Annotated[
        bool, "it gets no public address; you reach its private one: --subnet, --ssh-from"
    ] = False,
    json: Json = False,
    rehearse: Rehearse = False,
) -> None:
    """Bake images whose inputs changed, copy them to every region, and keep their ids in the lock file.

    Example: invoke bake --env research --image gpu
    """


@command("images.list", "images:images", default=True)
def images_list(
    env: Env = "",
    containers: Annotated[bool, "the container images that the cluster pulls, to mirror them"] = False,
    sizes: Annotated[bool, "the same with digests and sizes, for which the registries are asked"] = False,
    json: Json = False,
    rehearse: Rehearse = False,
) -> None:
    """Show each image by region: its AMI, how old that and its base are, and who uses it.

    Example: invoke images --env research
    Example: invoke images --env research --containers --sizes --json
    """


@command("images.prune", "images:prune")
def images_prune(
    env: Env = "",
    keep: Annotated[int, "how many of each image's newest stay, used or not"] = 2,
    yes: Annotated[bool, "do it; without it, only show what would be removed"] = False,
    json: Json = False,
    rehearse: Rehearse = False,
) -> None:
    """Remove AMIs and snapshots that no lock file, group, launch template or instance uses.

    Example: invoke images.prune --env research --keep 3
    """


@command(
    "roll", "images:roll", parameters={"checkpoint": "checkpoints", "pool": "pool_name", "region": "sites"}
)
def roll(
    pool: Annotated[str, "a pool of the spec"],
    env: Env = "",
    region: Annotated[Several, "only there, an AWS site of the spec"] = (),
    min_healthy: Annotated[int, "percentage of the group that stays in service meanwhile"] = 90,
    max_healthy: Annotated[int, "percentage that it may grow to meanwhile"] = 110,
    protected: Annotated[
        str, "instances protected from scale-in, as ours are: refresh (drain and replace), wait or ignore"
    ] = "refresh",
    checkpoint: Annotated[Several, "a percentage at which to pause for ten minutes"] = (),
    cancel: Annotated[bool, "stop a refresh that is under way"] = False,
    wait: Annotated[bool, "watch until it is over"] = True,
    json: Json = False,
    rehearse: Rehearse = False,
) -> None:
    """Replace a pool's instances with instances of the current launch template, drained, a few at a time.

    Example: invoke roll --env research --pool gpu-p3 --region us-west-2
    """


@command("converge", "machines.converging:converge", parameters={"all": "everything"})
def converge(
    env: Env = "",
    site: Annotated[str, "a site"] = "",
    nodes: Nodes = (),
    all: Annotated[bool, "every physical node of every site"] = False,
    why_run: Annotated[bool, "only say what would change"] = False,
    at_once: Annotated[int, "how many machines at a time"] = 8,
    json: Json = False,
) -> None:
    """Bring machines in line with the spec, in racks and regions: cookbooks over rsync, then Chef, over SSH.

    Example: invoke converge --env research --site rack-a --nodes titan-a01 --why-run
    """


@command("nodes", "machines.status:nodes", parameters={"nodes": "names"})
def nodes(env: Env = "", site: Annotated[str, "a site"] = "", nodes: Nodes = (), json: Json = False) -> None:
    """Show named machines: last converge, drift, versions, GPUs; exit code 1 if any is unhealthy.

    Example: invoke nodes --env research --site rack-a
    """


@command("enroll", "machines.enrolling:enroll", parameters={"nodes": "names", "converge": "then_converge"})
def enroll(
    env: Env = "",
    site: Annotated[str, "a site"] = "",
    nodes: Nodes = (),
    login: Annotated[
        str,
        "the account that a bare machine has, and its address where DNS does not know it: ubuntu@10.200.0.11",
    ] = "",
    fingerprint: Annotated[str, "its host key's SHA256 fingerprint, to confirm without a terminal"] = "",
    force: Annotated[bool, "also a machine that is not the one the spec means"] = False,
    converge: Annotated[bool, "converge it immediately"] = False,
    burn_in: Annotated[
        bool,
        "converge it without joining the cluster, then test its GPUs with DCGM and NCCL, before all else",
    ] = False,
    level: Annotated[int, "DCGM's level of the burn-in: 1 takes seconds, 3 about 15 minutes, 4 hours"] = 3,
) -> None:
    """Onboard a bare machine: remember its host key, compare it with the spec, install what a converge needs.

    Example: invoke enroll --env research --nodes titan-a01 --login ubuntu@10.200.0.11 --converge
    """


# -- The private network: tunnels between sites ------------------------------------------------------------


@command("vpn.push", "vpn.gateway_files:push", parameters={"site": "sites"})
def vpn_push(
    env: Env = "",
    site: Annotated[Several, "only its machines"] = (),
    json: Json = False,
    rehearse: Rehearse = False,
) -> None:
    """Send configurations, keys and certificates to gateways and VPN servers over SSH.

    Example: invoke vpn.push --env research --site rack-a
    """


@command("vpn.status", "vpn.tunnels:status")
def vpn_status(env: Env = "", json: Json = False, rehearse: Rehearse = False) -> None:
    """Show tunnels from both ends, VPN servers and WireGuard's devices; exit code 1 when one is down.

    Example: invoke vpn.status --env research
    """


@command("vpn.rotate", "vpn.tunnels:rotate")
def vpn_rotate(
    env: Env = "", site: Annotated[str, "the physical site whose tunnels get new keys"] = ""
) -> None:
    """Rotate the keys of a site's tunnels, one tunnel at a time, without losing traffic.

    Example: invoke vpn.rotate --env research --site rack-a
    """


@command("vpn.maintain", "vpn.upkeep:maintain")
def vpn_maintain(
    env: Env = "",
    site: Annotated[str, "the physical site whose tunnels are maintained"] = "",
    tunnel: Annotated[str, "only this one, by its name in vpn.status (default: all to AWS)"] = "",
    plan: Annotated[bool, "list what is pending; change nothing"] = False,
    json: Json = False,
    rehearse: Rehearse = False,
) -> None:
    """Apply AWS's pending maintenance of tunnel endpoints, one tunnel at a time, without losing traffic.

    Example: invoke vpn.maintain --env research --site rack-a --plan
    """


# -- The private network: laptops --------------------------------------------------------------------------


@command("vpn.init", "vpn.people:init")
def vpn_init(env: Env = "", rehearse: Rehearse = False) -> None:
    """Create the certificate authority of laptops and their servers; asks for a passphrase.

    Example: invoke vpn.init --env research
    """


@command("vpn.profile", "vpn.people:profile")
def vpn_profile(
    user: Annotated[str, "a login name of the spec"],
    env: Env = "",
    device: Annotated[str, "a second device of the user's, by any name: phone"] = "",
    csr: Annotated[str, "OpenVPN: a signing request to answer, of a key that stays on the laptop"] = "",
    home: Annotated[str, "the network the laptop is in, such as 192.168.1.0/24: clashes are reported"] = "",
    out: Annotated[str, "the file to write (default: below build/<env>/profiles)"] = "",
    kind: Annotated[str, "openvpn or wireguard (default: the first of access.vpn.kinds)"] = "",
    server: Annotated[
        str, "WireGuard: only for this site's server (default: a file for each, the code for the first)"
    ] = "",
    public_key: Annotated[
        str, "WireGuard: the public key that the device made, so that no private one leaves it"
    ] = "",
    qr: Annotated[bool, "WireGuard: also show the profile as a QR code, for a phone"] = False,
    push: Annotated[bool, "WireGuard: update the servers immediately"] = True,
    json: Json = False,
    rehearse: Rehearse = False,
) -> None:
    """Write a user's VPN profile: what every OpenVPN client, NetworkManager, or every WireGuard app imports.

    Example: invoke vpn.profile --env research --user ada --device phone --kind wireguard --qr
    """


@command("vpn.profiles", "vpn.people:profiles", parameters={"all": "everybody"})
def vpn_profiles(
    env: Env = "",
    all: Annotated[bool, "everybody's, also of who has one"] = False,
    json: Json = False,
    rehearse: Rehearse = False,
) -> None:
    """Write the profiles of all users who have none yet, or of all users.

    Example: invoke vpn.profiles --env research --all
    """


@command("vpn.list", "vpn.people:listing")
def vpn_list(env: Env = "", json: Json = False, rehearse: Rehearse = False) -> None:
    """List certificates and WireGuard devices: their users, expiry dates and status.

    Example: invoke vpn.list --env research
    """


@command("vpn.revoke", "vpn.people:revoke")
def vpn_revoke(
    user: Annotated[str, "whose certificates and WireGuard devices"],
    env: Env = "",
    device: Annotated[str, "only this device's (first: the user's first)"] = "",
    reason: Annotated[str, "as RFC 5280 has it: keyCompromise, cessationOfOperation…"] = "unspecified",
    push: Annotated[bool, "update the servers immediately, and close the user's connections"] = True,
    json: Json = False,
    rehearse: Rehearse = False,
) -> None:
    """Revoke a user's certificates and devices, update every server, and cut the user's connections.

    Example: invoke vpn.revoke --env research --user ada
    """


@command("vpn.renew", "vpn.people:renew", parameters={"revoke": "revoke_old"})
def vpn_renew(
    env: Env = "",
    user: Annotated[str, "whose certificate; all that ends soon without"] = "",
    device: Annotated[str, "the device (default: the first)"] = "",
    revoke: Annotated[bool, "revoke the old one immediately, for a lost key"] = False,
    authority: Annotated[bool, "a new intermediate authority; asks for the root's passphrase"] = False,
    json: Json = False,
    rehearse: Rehearse = False,
) -> None:
    """Renew certificates that expire soon, one user's certificate, or the issuing authority.

    Example: invoke vpn.renew --env research --user ada
    """


@command("vpn.import", "vpn.people:take_over")
def vpn_import(
    folder: Annotated[str, "easy-rsa's pki folder, with ca.crt and index.txt"], env: Env = ""
) -> None:
    """Import an easy-rsa PKI: its authority is used from now on, and its profiles keep working.

    Example: invoke vpn.import --env research --folder /etc/openvpn/easy-rsa/pki
    """


@command("vpn.backup", "vpn.people:backup")
def vpn_backup(env: Env = "", out: Annotated[str, "the file to write (default: <env>.pki)"] = "") -> None:
    """Write the whole PKI into one file, encrypted with a passphrase.

    Example: invoke vpn.backup --env research --out research.pki
    """


@command("vpn.restore", "vpn.people:restore", parameters={"file": "source"})
def vpn_restore(
    file: Annotated[str, "a file that vpn.backup wrote"],
    env: Env = "",
    replace: Annotated[bool, "also over a PKI of another root"] = False,
) -> None:
    """Restore a backup of the PKI; what was issued or revoked since then stays.

    Example: invoke vpn.restore --env research --file research.pki
    """


# -- The Kubernetes cluster -------------------------------------------------------------------------------


@command("cluster.up", "cluster.up:up")
def cluster_up(
    env: Env = "",
    plan: Annotated[bool, "only say what would be done"] = False,
    destroy: Annotated[
        Several, "what holds people's work, is no longer rendered, and may go: Namespace/user-ada"
    ] = (),
    at_once: Annotated[int, "how many workers converge at a time"] = 8,
    json: Json = False,
    rehearse: Rehearse = False,
) -> None:
    """Create the cluster, or bring all of it in line with the spec; run again to continue.

    Example: invoke cluster.up --env research --plan
    """


@command("cluster.status", "cluster.status:status")
def cluster_status(env: Env = "", json: Json = False, rehearse: Rehearse = False) -> None:
    """Show masters, etcd, nodes, GPUs, add-ons, certificates; exit code 1 if any is unhealthy.

    Example: invoke cluster.status --env research
    """


@command("cluster.upgrade", "cluster.upgrade:upgrade")
def cluster_upgrade(
    to: Annotated[str, "the minor, as the spec has it: 1.37"] = "",
    env: Env = "",
    plan: Annotated[bool, "only show what would be done, and what prevents it"] = False,
    yes: Yes = False,
    pools: Annotated[bool, "pools in the cloud too, by an instance refresh each"] = True,
    force: Annotated[bool, "even if something prevents it"] = False,
    gate: Annotated[int, "seconds to wait after each step until the cluster is as healthy as before"] = 300,
    json: Json = False,
) -> None:
    """Bring the cluster to the spec's release, one machine at a time; stop when it is unhealthy.

    Example: invoke cluster.upgrade --env research --to 1.37 --plan
    """


@command("cluster.add-node", "cluster.nodes:add", parameters={"node": "name"})
def cluster_add_node(
    node: Annotated[str, "a machine of the spec"],
    env: Env = "",
    login: Annotated[
        str, "the account that a bare machine has, and its address where DNS does not know it"
    ] = "",
    fingerprint: Annotated[str, "its host key's SHA256 fingerprint, to confirm without a terminal"] = "",
    json: Json = False,
) -> None:
    """Add a machine as a node: enroll it, converge it, wait until it is ready.

    Example: invoke cluster.add-node titan-a01 --env research --login ubuntu@10.200.0.11
    """


@command("cluster.drain", "cluster.nodes:drain", parameters={"node": "name"})
def cluster_drain(
    node: Annotated[str, "a node of the cluster"],
    env: Env = "",
    undo: Annotated[bool, "let it take pods again"] = False,
    out_of_service: Annotated[
        bool, "its machine is off: delete its pods without it, and detach their volumes"
    ] = False,
    yes: Yes = False,
    timeout: Annotated[int, "seconds that pods have to leave, budgets included"] = 900,
    grace: Annotated[int, "seconds that each pod has to end (default: as it says itself)"] = -1,
    force: Annotated[bool, "also pods that no controller brings back: they are lost"] = False,
    ignore_budgets: Annotated[bool, "past pod disruption budgets: what they guard may be down"] = False,
    json: Json = False,
) -> None:
    """Drain a node: evict its pods, and keep new ones away.

    Example: invoke cluster.drain titan-a01 --env research
    """


@command("cluster.remove", "cluster.nodes:remove", parameters={"node": "name"})
def cluster_remove(
    node: Annotated[str, "a node of the cluster, or a master"],
    env: Env = "",
    yes: Yes = False,
    timeout: Annotated[int, "seconds that pods have to leave"] = 900,
    force: Annotated[bool, "also pods that no controller brings back: they are lost"] = False,
    lost: Annotated[bool, "the machine is gone: nothing is drained"] = False,
    json: Json = False,
) -> None:
    """Remove a node from the cluster: drain and reset it; a master also leaves etcd.

    Example: invoke cluster.remove titan-a01 --env research
    """


@command("cluster.restore", "cluster.restore:restore")
def cluster_restore(
    env: Env = "",
    snapshot: Annotated[str, "a copy's name, as it is shown without one"] = "",
    latest: Annotated[bool, "the newest copy"] = False,
    yes: Yes = False,
    lost: Annotated[Several, "a master that is gone for good"] = (),
    json: Json = False,
) -> None:
    """Restore etcd from a snapshot on all masters. Without a snapshot's name, list them.

    Example: invoke cluster.restore --env research --latest
    """


@command("cluster.rotate-encryption", "cluster.rotating:rotate")
def cluster_rotate_encryption(env: Env = "", yes: Yes = False, json: Json = False) -> None:
    """Encrypt the cluster's secrets at rest with a new key, and discard the old one.

    Example: invoke cluster.rotate-encryption --env research
    """


@command("cluster.rotate-signing-key", "cluster.signing:rotate")
def cluster_rotate_signing_key(env: Env = "", yes: Yes = False, json: Json = False) -> None:
    """Sign service account tokens with a new key; run again a day later to discard the old one.

    Example: invoke cluster.rotate-signing-key --env research
    """


@command("cluster.change-issuer", "cluster.issuers:change")
def cluster_change_issuer(env: Env = "", yes: Yes = False, json: Json = False) -> None:
    """Sign service account tokens as the spec's first issuer; run again a day later to drop old ones.

    Example: invoke cluster.change-issuer --env research
    """


@command(
    "kubeconfig.write",
    "cluster.credentials:kubeconfig",
    default=True,
    parameters={"exec": "by_exec", "user": "login"},
)
def kubeconfig_write(
    user: Annotated[str, "a login name of the spec"],
    env: Env = "",
    hours: Annotated[int, "how long the certificate lasts"] = 12,
    exec: Annotated[
        bool, "no certificate, but a command that gets one; for engineers who may be root on a master"
    ] = False,
    certificate: Annotated[
        bool, "a certificate, also where the spec has single sign-on (access.oidc)"
    ] = False,
    out: Annotated[str, "the file to write (default: build/<env>/kubeconfigs/<user>.yaml)"] = "",
    json: Json = False,
) -> None:
    """Write a user's kubeconfig: single sign-on, a certificate for half a day, or a command that gets one.

    Example: invoke kubeconfig --env research --user ada
    """


@command("kubeconfig.credential", "cluster.credentials:credential", parameters={"user": "login"})
def kubeconfig_credential(user: Annotated[str, "a login name of the spec"], env: Env = "") -> None:
    """Print a certificate as an ExecCredential for kubectl; `kubeconfig --exec` refers to this command.

    Example: invoke kubeconfig.credential --env research --user ada
    """


# -- Node pools -------------------------------------------------------------------------------------------


@command("pool.drain", "pools:drain", parameters={"site": "sites"})
def pool_drain(
    pool: Annotated[str, "a pool of the spec, or one that was taken out of it and still has instances"],
    env: Env = "",
    site: Annotated[Several, "only in this site"] = (),
    zone: Annotated[str, "only in this availability zone, before it is taken from a site's zones"] = "",
    evict: Annotated[bool, "evict pods now, within their budgets, instead of waiting until they end"] = False,
    timeout: Annotated[int, "with --evict: seconds that the pods of a node have to leave"] = 900,
    yes: Yes = False,
    json: Json = False,
    rehearse: Rehearse = False,
) -> None:
    """Empty a pool before it is removed: no new nodes, and each node is terminated once no pod works on it.

    Example: invoke pool.drain --env research --pool gpu-p3
    """


# -- The autoscaler ---------------------------------------------------------------------------------------


@command("autoscaler.status", "autoscaler.status:status")
def autoscaler_status(env: Env = "", json: Json = False) -> None:
    """Show whether the autoscaler works, groups in back-off, nodes that are ending; exit code 1 if unhealthy.

    Example: invoke autoscaler.status --env research
    """


@command("autoscaler.explain", "autoscaler.explaining:explain")
def autoscaler_explain(
    pod: Annotated[str, "as namespace/name; without it, all that wait"] = "",
    file: Annotated[
        str, "a manifest of Pods and Jobs: what would be done for them, in an otherwise idle cluster"
    ] = "",
    env: Env = "",
    json: Json = False,
    rehearse: Rehearse = False,
) -> None:
    """Explain why a pod is waiting, group by group, and what the autoscaler would do now. Writes nothing.

    Example: invoke autoscaler.explain --pod user-ada/train-0 --env research
    """


@command("autoscaler.simulate", "autoscaler.simulating:simulate")
def autoscaler_simulate(
    trace: Annotated[
        str, "a file of jobs, JSON lines (default: a story that ships, with pools of its own)"
    ] = "",
    plot: Annotated[str, "write a plot, too: a file that ends in .svg, .png or .pdf"] = "",
    days: Annotated[str, "only so many of the trace's first days"] = "",
    env: Env = "",
    json: Json = False,
) -> None:
    """Show how long a trace of jobs would have waited, and its cost, with an environment's pools.

    Example: invoke autoscaler.simulate --trace t.jsonl --plot week.svg --env research
    """


@command("cluster.alert-secret", "cluster.alert_secrets:keep")
def cluster_alert_secret(
    receiver: Annotated[str, "slack, its token; slack_webhook or webhook, its address"], env: Env = ""
) -> None:
    """Store the Slack token or a webhook's address for alerts; it is prompted for, or read from a pipe.

    Example: invoke cluster.alert-secret slack --env research
    """


@command("cluster.tracking-backup", "cluster.tracking:backup", parameters={"snapshots": "listed"})
def cluster_tracking_backup(
    env: Env = "",
    file: Annotated[str, "where the copy goes, of a database in a pod; by default a new file here"] = "",
    snapshots: Annotated[bool, "show those that RDS has"] = False,
    json: Json = False,
) -> None:
    """Copy MLflow's database: into a file where it runs in a pod, as a snapshot at RDS.

    Example: invoke cluster.tracking-backup --env research
    """


@command("cluster.tracking-restore", "cluster.tracking:restore")
def cluster_tracking_restore(
    file: Annotated[str, "a copy that cluster.tracking-backup made"],
    env: Env = "",
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Restore a copy of MLflow's database, and restart its servers.

    Example: invoke cluster.tracking-restore --env research --file research-mlflow-20261127-0300.dump
    """


# invoke's error for a word that it does not know, and to a shell that asks what may come next.
mistyped.install()
completion.install()
