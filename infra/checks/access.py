"""Access and users (ACC)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from typing import Final

from infra.catalogue import instances, regions
from infra.checks import keys
from infra.checks.blocks import PRIVATE
from infra.checks.facts import Facts, Single
from infra.checks.phrases import listed, meant_one_of, repeated
from infra.checks.pools import meant_type
from infra.checks.registry import Finding, check
from infra.errors import Level, Path, dotted
from infra.schema import defaults
from infra.schema.access import User
from infra.schema.sites import NodeRole

RSA_BITS: Final = 2048
"""The minimum length of RSA keys (NIST SP 800-131A)."""
UBUNTUS: Final = 1000
"""The uid and gid of the user ``ubuntu`` on Ubuntu's cloud images."""
WIDEST: Final = 8
"""A public block with a shorter prefix is treated like the whole internet."""
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s.]+")

TAKEN: Final = frozenset(
    (
        "_apt", "adm", "admin", "backup", "bin", "chrony", "cloud-user", "daemon", "dhcpcd", "dip", "disk",
        "docker", "etcd", "games", "irc", "kube", "landscape", "libvirt", "list", "lp", "lxd", "mail",
        "man", "messagebus", "mysql", "news", "nobody", "nogroup", "nvidia-persistenced", "openvpn",
        "pollinate", "postfix", "proxy", "root", "shadow", "ssh", "sshd", "sudo", "sync", "sys", "syslog",
        "systemd-journal", "systemd-network", "systemd-resolve", "tcpdump", "tss", "tty", "ubuntu", "users",
        "uucp", "uuidd", "video", "wheel", "www-data",
    )
)  # fmt: skip
"""Users and groups that Ubuntu, or software installed on it, already has."""


def _keys(facts: Facts) -> Iterator[tuple[Path, str]]:
    for login, user in facts.spec.access.users.items():
        for index, line in enumerate(user.ssh_keys):
            yield ("access", "users", login, "ssh_keys", index), line


def _secret(line: str) -> bool:
    return "PRIVATE KEY" in line


@check("ACC001", Level.WARNING, "A user without an SSH key.")
def no_key(facts: Facts) -> Iterator[Finding]:
    for login, user in facts.spec.access.users.items():
        if not user.ssh_keys:
            message = f"{login} has no SSH key, and can log in nowhere"
            yield Finding(("access", "users", login), message, "add 'ssh_keys:' with a public key")


@check("ACC002", Level.ERROR, "An SSH key can't be read.")
def key_form(facts: Facts) -> Iterator[Finding]:
    for path, line in _keys(facts):
        why = keys.parse(line)
        if isinstance(why, str) and not _secret(line):
            yield Finding(path, f"this is not a public SSH key: {why}", "paste the whole line of a .pub file")


@check("ACC003", Level.ERROR, "A private key in a spec.", waivable=False)
def private_key(facts: Facts) -> Iterator[Finding]:
    for path, line in _keys(facts):
        if _secret(line):
            message = "this is a private key: anyone who has read this file can log in with it"
            yield Finding(path, message, "make a new pair, and paste the .pub file")


@check("ACC004", Level.ERROR, "An SSH key that is too weak.")
def weak_key(facts: Facts) -> Iterator[Finding]:
    for path, line in _keys(facts):
        key = keys.parse(line)
        if isinstance(key, str):
            continue
        if key.kind == "ssh-dss":
            message = "a DSA key: OpenSSH takes none since 10.0"
            yield Finding(path, message, "make a new one: ssh-keygen -t ed25519")
        elif key.kind == "ssh-rsa" and key.bits < RSA_BITS:
            message = f"an RSA key of {key.bits} bits; {RSA_BITS} is the least"
            yield Finding(path, message, "make a new one: ssh-keygen -t ed25519")


@check("ACC005", Level.WARNING, "An SSH key is listed twice.")
def key_twice(facts: Facts) -> Iterator[Finding]:
    seen: dict[bytes, Path] = {}
    for path, line in _keys(facts):
        key = keys.parse(line)
        if isinstance(key, keys.PublicKey):
            first = seen.setdefault(key.body, path)
            if first is not path:
                message = f"this is {dotted(first)} already"
                yield Finding(path, message, "each person, and each laptop, has a key of their own")


def _numbers_twice(kind: str, field: str, stated: Mapping[str, int | None]) -> Iterator[Finding]:
    seen: dict[int, str] = {}
    for name, number in stated.items():
        if number is not None:
            first = seen.setdefault(number, name)
            if first != name:
                message = f"{first} has {field} {number} already: they would share their files"
                yield Finding(("access", kind, name, field), message, "leave it out to have one allocated")


@check("ACC006", Level.ERROR, "Two users have the same uid.", waivable=False)
def uid_twice(facts: Facts) -> Iterator[Finding]:
    users = facts.spec.access.users
    yield from _numbers_twice("users", "uid", {login: user.uid for login, user in users.items()})


@check("ACC007", Level.ERROR, "Two groups have the same gid.", waivable=False)
def gid_twice(facts: Facts) -> Iterator[Finding]:
    groups = facts.spec.access.groups
    yield from _numbers_twice("groups", "gid", {name: group.gid for name, group in groups.items()})


@check("ACC008", Level.ERROR, "A uid or gid that machines already use.")
def taken_number(facts: Facts) -> Iterator[Finding]:
    access = facts.spec.access
    numbers: list[tuple[Path, int | None]] = [
        (("access", "users", login, "uid"), user.uid) for login, user in access.users.items()
    ]
    numbers += [(("access", "groups", name, "gid"), group.gid) for name, group in access.groups.items()]
    for path, number in numbers:
        if number == UBUNTUS:
            yield Finding(path, f"{number} is the user ubuntu's on every machine", "take one above 1000")


@check("ACC009", Level.ERROR, "A user or group with a name that machines already use.")
def taken_name(facts: Facts) -> Iterator[Finding]:
    for kind, names in (("users", facts.spec.access.users), ("groups", facts.spec.access.groups)):
        for name in names:
            if name in TAKEN or name == defaults.ADMIN or name.startswith("systemd-"):
                yield Finding(
                    ("access", kind, name), f"every machine has {name} already", "take another name"
                )


def _groups(facts: Facts) -> Iterator[tuple[Path, str]]:
    """Every reference to a group."""
    for login, user in facts.spec.access.users.items():
        for index, group in enumerate(user.groups):
            yield ("access", "users", login, "groups", index), group
    for name, node in facts.spec.access.ssh_nodes.items():
        for index, group in enumerate(node.groups):
            yield ("access", "ssh_nodes", name, "groups", index), group


@check("ACC010", Level.ERROR, "A group that does not exist.")
def known_group(facts: Facts) -> Iterator[Finding]:
    known = facts.spec.access.groups
    for path, group in _groups(facts):
        if group not in known:
            yield Finding(path, f"group {group} not found", meant_one_of(group, known))


@check("ACC011", Level.ERROR, "A group is named twice in one list.")
def group_twice(facts: Facts) -> Iterator[Finding]:
    for login, user in facts.spec.access.users.items():
        for index, group in repeated(user.groups):
            path = ("access", "users", login, "groups", index)
            yield Finding(path, f"{login} is in {group} already", "take one out")


@check("ACC012", Level.WARNING, "A user who is in no group, and so may reach nothing.")
def no_group(facts: Facts) -> Iterator[Finding]:
    for login, user in facts.spec.access.users.items():
        if not user.groups:
            message = f"{login} is in no group, and may reach nothing"
            hint = f"add 'groups:'; {_there_are(facts.spec.access.groups)}"
            yield Finding(("access", "users", login), message, hint)


def _there_are(names: Mapping[str, object]) -> str:
    return f"available: {listed(sorted(names))}" if names else "there are none yet"


@check("ACC013", Level.WARNING, "An invalid email address for warnings.")
def email(facts: Facts) -> Iterator[Finding]:
    for login, user in facts.spec.access.users.items():
        if user.email and not _EMAIL.fullmatch(user.email):
            path = ("access", "users", login, "email")
            yield Finding(path, f"{user.email!r} is not an email address", "as in ada@lab.example")
        elif user.expires is not None and not user.email:
            message = f"{login} is not notified that access ends on {user.expires}"
            yield Finding(("access", "users", login, "expires"), message, "add 'email:'")


@check("ACC014", Level.ERROR, "A user and a group share a name, but not as one's own group.")
def user_and_group(facts: Facts) -> Iterator[Finding]:
    access = facts.spec.access
    for login, user in access.users.items():
        if login in access.groups and not _own(user, login):
            message = f"{login} is a group too, and not {login}'s primary one"
            yield Finding(
                ("access", "users", login), message, "rename one: useradd makes no user of that name"
            )


@check("ACC030", Level.WARNING, "Single sign-on by address, but a user has none.")
def no_address(facts: Facts) -> Iterator[Finding]:
    for login, user in _by_address(facts):
        if not user.email:
            message = f"{login} has no email, by which access.oidc would know them"
            yield Finding(("access", "users", login), message, "add 'email:', or name another 'claim:'")


@check("ACC031", Level.ERROR, "Single sign-on by address, but two users share one.", waivable=False)
def address_twice(facts: Facts) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for login, user in _by_address(facts):
        first = seen.setdefault(user.email.lower(), login)
        if user.email and first != login:
            path = ("access", "users", login, "email")
            message = f"{first} has this address too, and access.oidc knows people by it"
            yield Finding(path, message, "give each their own, or name another 'claim:'")


def _by_address(facts: Facts) -> Iterator[tuple[str, User]]:
    access = facts.spec.access
    if access.oidc is not None and access.oidc.claim == "email":
        yield from access.users.items()


def _own(user: User, group: str) -> bool:
    return user.groups[:1] == (group,)


def _doors(facts: Facts) -> Iterator[Single]:
    """SSH nodes and VPN servers."""
    return (single for single in facts.singles if single.path[0] == "access")


def _each_once(facts: Facts) -> Iterator[Single]:
    seen = set()
    for single in _doors(facts):
        if single.path not in seen:
            seen.add(single.path)
            yield single


@check("ACC015", Level.ERROR, "An SSH node or VPN server is of an instance type that does not exist.")
def door_type(facts: Facts) -> Iterator[Finding]:
    for single in _each_once(facts):
        if single.type is None:
            message = f"{single.type_name} is not an EC2 instance type"
            yield Finding((*single.path, "instance_type"), message, meant_type(single.type_name))


@check(
    "ACC016",
    Level.ERROR,
    "The image of an SSH node or VPN server does not exist.",
    waivable=False,
)
def door_image(facts: Facts) -> Iterator[Finding]:
    images = facts.spec.images
    for single in _each_once(facts):
        inherited = single.path == ("access", "vpn") and facts.spec.access.vpn.image is None
        if single.image_name is not None and single.image_name not in images and not inherited:
            message = f"image {single.image_name} not found"
            hint = meant_one_of(single.image_name, images)
            yield Finding((*single.path, "image"), message, hint)


@check("ACC017", Level.ERROR, "A machine with a name has an image of another architecture than its type.")
def single_architecture(facts: Facts) -> Iterator[Finding]:
    seen = set()
    for single in facts.singles:
        image = facts.spec.images.get(single.image_name or "")
        known = image is not None and single.type is not None and single.path not in seen
        seen.add(single.path)
        if known and image and single.type and image.architecture not in single.type.architectures:
            message = (
                f"{single.type_name} is {' and '.join(single.type.architectures)}, the image "
                f"{single.image_name} is {image.architecture}"
            )
            hint = "take a type or an image of the other architecture"
            yield Finding((*single.path, "instance_type"), message, hint)


@check("ACC018", Level.ERROR, "An SSH node with GPUs runs an image without a driver.")
def door_driver(facts: Facts) -> Iterator[Finding]:
    for name, node in facts.spec.access.ssh_nodes.items():
        image = facts.spec.images.get(node.image)
        kind = instances.find(node.instance_type)
        if image is not None and image.gpu is None and kind is not None and kind.gpus:
            able = sorted(other for other, each in facts.spec.images.items() if each.gpu is not None)
            message = f"{node.instance_type} has GPUs, and the image {node.image} has no driver for them"
            hint = f"take {listed(able)}" if able else f"add 'gpu:' to images.{node.image}"
            yield Finding(("access", "ssh_nodes", name, "image"), message, hint)


@check("ACC019", Level.WARNING, "A machine with a name is of a type that its region does not offer.")
def single_offered(facts: Facts) -> Iterator[Finding]:
    for single in facts.singles:
        place = facts.places.get(single.site or "")
        if place is not None and single.type and regions.offered(single.type_name, place.region) == ():
            message = f"AWS does not offer {single.type_name} in {place.region}, where {single.owner} is"
            yield Finding((*single.path, "instance_type"), message, "take a type that it has")


@check("ACC020", Level.ERROR, "An SSH node is in a region that the spec does not have.", waivable=False)
def ssh_site(facts: Facts) -> Iterator[Finding]:
    for name, node in facts.spec.access.ssh_nodes.items():
        path: Path = ("access", "ssh_nodes", name)
        if node.site is not None and node.site not in facts.places:
            message = f"{node.site} is not an AWS site of this spec"
            yield Finding((*path, "site"), message, meant_one_of(node.site, facts.places))
        elif not facts.places:
            yield Finding(path, "the spec has no AWS region for it", "add a region")


def _open(facts: Facts) -> Iterator[tuple[Path, IPv4Network]]:
    for name, node in facts.spec.access.ssh_nodes.items():
        for index, block in enumerate(node.ssh_from):
            yield ("access", "ssh_nodes", name, "ssh_from", index), block
    for name, site in facts.physical_sites.items():
        for index, block in enumerate(site.gateway.ssh_from if site.gateway is not None else ()):
            yield ("sites", name, "gateway", "ssh_from", index), block


@check("ACC021", Level.WARNING, "SSH is open to the world.")
def open_world(facts: Facts) -> Iterator[Finding]:
    for path, block in _open(facts):
        if block.prefixlen < WIDEST:
            message = f"{block} opens port 22 to the internet"
            yield Finding(path, message, "name your networks, or let people connect by the VPN")


@check("ACC022", Level.WARNING, "An SSH node's `ssh_from` does not match its address.")
def doors_fit(facts: Facts) -> Iterator[Finding]:
    for name, node in facts.spec.access.ssh_nodes.items():
        path: Path = ("access", "ssh_nodes", name)
        if node.ssh_from and not node.public:
            message = f"{name} has no public address for them to reach"
            yield Finding((*path, "ssh_from"), message, "add 'public: true', or take it out")
        elif node.public and not node.ssh_from:
            message = f"{name} has a public address, and nobody outside may use it"
            yield Finding((*path, "public"), message, "add 'ssh_from:', or take it out")


@check("ACC023", Level.WARNING, "A private block among those that may reach SSH from outside.")
def private_from(facts: Facts) -> Iterator[Finding]:
    for path, block in _open(facts):
        if any(block.subnet_of(private) for private in PRIVATE):
            message = f"{block} is private: nobody comes from there over the internet"
            yield Finding(path, message, "take it out: private networks may enter anyway")


def _servers(facts: Facts) -> Iterator[tuple[Path, str]]:
    for index, site in enumerate(facts.spec.access.vpn.servers or ()):
        yield ("access", "vpn", "servers", index), site


@check("ACC024", Level.ERROR, "A VPN server is at a site that the spec does not have.", waivable=False)
def server_site(facts: Facts) -> Iterator[Finding]:
    for path, site in _servers(facts):
        if site not in facts.spec.sites:
            yield Finding(path, f"site {site} not found", meant_one_of(site, facts.spec.sites))


@check("ACC025", Level.ERROR, "A VPN server at a physical site that can't have one.")
def server_able(facts: Facts) -> Iterator[Finding]:
    for path, name in _servers(facts):
        site = facts.physical_sites.get(name)
        if site is None:
            continue
        if site.gateway is None:
            yield Finding(
                path, f"{name} has no gateway, and so no public address", "add 'gateway:' to the site"
            )
        elif (name, NodeRole.ACCESS_GATEWAY) not in facts.servers:
            message = f"no node of {name} has the role access-gateway"
            yield Finding(path, message, "give one the role: it runs the VPN server")


@check("ACC026", Level.ERROR, "A VPN server, or a kind of them, is named twice.", waivable=False)
def server_twice(facts: Facts) -> Iterator[Finding]:
    vpn = facts.spec.access.vpn
    for field, words in (("servers", vpn.servers or ()), ("kinds", vpn.kinds)):
        for index, word in repeated(words):
            yield Finding(("access", "vpn", field, index), f"{word} is named already", "take one out")


@check("ACC027", Level.WARNING, "Users of the VPN without a server.")
def no_server(facts: Facts) -> Iterator[Finding]:
    users = [login for login, user in facts.spec.access.users.items() if user.vpn]
    if facts.spec.access.vpn.servers == () and users:
        message = f"{listed(users)} may use the VPN, but it has no server"
        yield Finding(("access", "vpn", "servers"), message, "name a site, or leave it out for the primary")


@check("ACC028", Level.ERROR, "Two people, or two groups, would have one namespace.", waivable=False)
def namespace_twice(facts: Facts) -> Iterator[Finding]:
    access = facts.spec.access
    for part, names, namespace in (
        ("users", access.users, defaults.user_namespace),
        ("groups", access.groups, defaults.team_namespace),
    ):
        seen: dict[str, str] = {}
        for name in names:
            first = seen.setdefault(namespace(name), name)
            if first != name:
                message = f"{first} has the namespace {namespace(name)} already"
                yield Finding(("access", part, name), message, "'_' becomes '-' there: take another name")
