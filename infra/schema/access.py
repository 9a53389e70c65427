"""Users, groups, SSH nodes and the VPN."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.schema.base import IN_PLACE, NEVER, REPLACES, ROLLING, Part
from infra.schema.types import (
    Bool,
    Certificate,
    Cidr,
    ClaimName,
    Date,
    Domain,
    Duration,
    Int,
    IssuerUrl,
    Name,
    Path,
    Size,
    Text,
    UserName,
)


class Wireguard(Part):
    """WireGuard, used if it is in ``kinds``: each user has eight addresses, one per device."""

    clients: Annotated[Cidr | None, NEVER("profiles and rules name it")] = None
    """The range of devices, the same at every server. Default: a block of 100.64.0.0/10."""
    prefix: Annotated[Int, Field(ge=16, le=28), NEVER("profiles and rules name it")] = 20
    """The length of an allocated range. The servers have the first eight addresses of it, so that a /20 is
    for 511 users."""


class Vpn(Part):
    """Remote access for laptops and phones."""

    kinds: Annotated[tuple[Literal["openvpn", "wireguard"], ...], Field(min_length=1), IN_PLACE] = (
        "openvpn",
    )
    """The protocols of each server. With both, a user may have profiles of both; the first is the default of
    ``invoke vpn.profile``."""
    wireguard: Annotated[Wireguard, IN_PLACE] = Field(default_factory=Wireguard)
    """WireGuard's addresses."""
    clients: Annotated[Cidr | None, NEVER("profiles and rules name it")] = None
    """The range of OpenVPN clients. Default: a block of 100.64.0.0/10, which home routers do not use."""
    prefix: Annotated[Int, Field(ge=16, le=24), NEVER("profiles and rules name it")] = 20
    """The length of an allocated range. Each server has an eighth of it, half for UDP and half for TCP."""
    servers: Annotated[tuple[Name, ...] | None, IN_PLACE] = None
    """Sites with a server, in the order in which clients try them. Default: the primary region."""
    instance_type: Annotated[Text, ROLLING] = "t3.small"
    """The EC2 type of a region's server."""
    image: Annotated[Name | None, ROLLING] = None
    """Its image. Default: the control plane's."""
    random: Annotated[Bool, IN_PLACE] = False
    """Whether laptops try servers in random order."""
    full_tunnel: Annotated[Bool, IN_PLACE] = False
    """Whether all of a laptop's traffic goes through the VPN."""
    tcp: Annotated[Bool, IN_PLACE] = True
    """Whether OpenVPN also answers on TCP 443, for networks that block UDP."""
    certificate_days: Annotated[Int, Field(ge=1, le=825), IN_PLACE] = 365
    """How long a client certificate, or a WireGuard key, is valid."""


class SshNode(Part):
    """A machine to log in to."""

    site: Annotated[Name | None, REPLACES] = None
    """The AWS site that it is in. Default: the primary region."""
    instance_type: Annotated[Text, ROLLING]
    """Its EC2 instance type; with or without a GPU."""
    image: Annotated[Name, ROLLING]
    """Its image."""
    count: Annotated[Int, Field(ge=1, le=20), IN_PLACE] = 1
    """How many there are."""
    root_disk: Annotated[Size | None, ROLLING] = None
    """Its root volume. Default: the image's."""
    public: Annotated[Bool, REPLACES] = False
    """Whether it has a public address; ``ssh_from`` says who reaches it."""
    ssh_from: Annotated[tuple[Cidr, ...], IN_PLACE] = ()
    """Public blocks that may reach port 22. Default: only the private network."""
    groups: Annotated[tuple[UserName, ...], IN_PLACE] = ()
    """Groups whose users may log in. Default: all."""


class Group(Part):
    """Users with the same rights."""

    gid: Annotated[Int | None, Field(ge=1000, le=60000), NEVER("files belong to it")] = None
    """Its Unix id, the same everywhere. Default: allocated from 5000 and kept by the lock file."""
    reach: Annotated[tuple[Literal["pods", "services", "ssh", "nodes", "everything"], ...], IN_PLACE] = (
        "pods",
        "services",
        "ssh",
    )
    """What its users may reach over the VPN."""
    sudo: Annotated[Bool, ROLLING] = False
    """Whether its users may become root."""
    gpu_quota: Annotated[Int | None, Field(ge=0), IN_PLACE] = None
    """The GPUs guaranteed to its jobs: those that others hold are reclaimed, and idle ones are lent to
    others. Default: none; GPUs that no group is guaranteed are shared by ``weight``."""
    gpu_limit_per_user: Annotated[Int | None, Field(ge=1), IN_PLACE] = None
    """The GPUs that one of its users may hold at a time in its queue, of all pools together; more wait. What
    runs in the group's own namespace counts for the user who submitted it, and what a controller runs there,
    such as a Deployment, for the group as for one more user. Default: no limit."""
    weight: Annotated[Int, Field(ge=1, le=100), IN_PLACE] = 1
    """Its weight in sharing the GPUs that no group is guaranteed."""
    pod_security: Annotated[Literal["restricted", "baseline", "privileged"], IN_PLACE] = "baseline"
    """The Pod Security level of its namespace (Pod Security Standards). ``privileged`` makes each of its
    users root on every worker."""


class User(Part):
    """A user."""

    name: Annotated[Text, IN_PLACE] = ""
    """The full name."""
    email: Annotated[Text, IN_PLACE] = ""
    """Where expiry warnings go."""
    uid: Annotated[Int | None, Field(ge=1000, le=60000), NEVER("files belong to it")] = None
    """The Unix id, the same everywhere. Default: allocated from 10000 and kept by the lock file."""
    groups: Annotated[tuple[UserName, ...], ROLLING] = ()
    """The groups the user is in; the first is the primary one."""
    ssh_keys: Annotated[tuple[Text, ...], ROLLING] = ()
    """Public SSH keys, as in ``authorized_keys``."""
    vpn: Annotated[Bool, IN_PLACE] = True
    """Whether the user gets a VPN profile."""
    shell: Annotated[Path, ROLLING] = "/bin/bash"
    """The login shell."""
    expires: Annotated[Date | None, ROLLING] = None
    """The last day of access, ``2027-03-31``."""


class Oidc(Part):
    """Single sign-on to the API: tokens of an issuer of yours (OpenID Connect), which also asks for second
    factors."""

    issuer: Annotated[IssuerUrl, IN_PLACE]
    """Its URL, ``https://login.lab.example/realms/lab``: what tokens have as ``iss``."""
    client: Annotated[Text, Field(min_length=1), IN_PLACE]
    """The public client (PKCE, without a secret) that is registered there for kubectl: what tokens have as
    ``aud``."""
    claim: Annotated[ClaimName, IN_PLACE] = "email"
    """What in a token says whose it is: ``email`` is compared with users' addresses, anything else, such as
    ``preferred_username``, with login names."""
    authority: Annotated[Certificate | None, IN_PLACE] = None
    """The certificate of the authority that signed the issuer's, PEM. Default: what the system trusts."""


class Access(Part):
    """Access and users."""

    vpn: Annotated[Vpn, IN_PLACE] = Field(default_factory=Vpn)
    """Remote access for laptops."""
    ssh_nodes: Annotated[dict[Name, SshNode], IN_PLACE] = Field(default_factory=dict)
    """Machines to log in to."""
    groups: Annotated[dict[UserName, Group], IN_PLACE] = Field(default_factory=dict)
    """Groups of users."""
    users: Annotated[dict[UserName, User], IN_PLACE] = Field(default_factory=dict)
    """Users, by login name."""
    oidc: Annotated[Oidc | None, IN_PLACE] = None
    """Single sign-on to the API. Default: short-lived certificates alone."""
    internal_domain: Annotated[Domain | None, IN_PLACE] = None
    """The domain of internal pages. Default: ``domain``."""
    session_limit: Annotated[Duration, Field(ge=3600, le=2592000), IN_PLACE] = 604800
    """After how long a VPN session must be authenticated again."""
