"""Whether charon, as installed here, has the algorithms of the proposals that are rendered.

Plugins bring them, and one that is not installed is missed only when a peer answers: tunnels stay down.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from golden_clusters import golden

_PACKAGES = Path(__file__).parents[1] / "packages.sh"

# In namespaces of its own: this machine may have a charon that runs.
_OWN_SPACES = (
    "unshare", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
)  # fmt: skip
_LIST = """\
mount -t tmpfs tmpfs /run
ip link set lo up
charon-systemd >/dev/null 2>&1 &
charon=$!
until [ -S /run/charon.vici ]; do
  kill -0 $charon || exit 1
  sleep 0.05
done
swanctl --list-algs 2>/dev/null
"""

_NAMES = (
    (re.compile(r"aes\d+gcm16"), "AES_GCM_16"),
    (re.compile(r"prfsha(\d+)"), r"PRF_HMAC_SHA2_\1"),
    (re.compile(r"ecp(\d+)"), r"ECP_\1"),
)
"""A word of a proposal (swanctl.conf(5)) → charon's name of the algorithm."""


def offered(**env: str) -> set[str]:
    """The names of charon's algorithms: ``AES_GCM_16``, ``ECP_384``; none where it does not start."""
    done = subprocess.run(
        [*_OWN_SPACES, "sh", "-eu", "-c", _LIST],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", **env},
    )
    return set(re.findall(r"^ +(\w+)\[", done.stdout, re.MULTILINE))


def needed(proposals: Iterable[str]) -> set[str]:
    """The names of the algorithms in proposals: ``aes256gcm16-prfsha384-ecp384``."""
    return {_name(word) for proposal in proposals for word in proposal.split("-")}


def problem(names: set[str]) -> str:
    """What charon lacks for the tunnels of every golden cluster, or nothing."""
    ipsec = golden("research").network.ipsec
    lacking = needed([*ipsec.ike_proposals, *ipsec.esp_proposals]) - names
    if not lacking:
        return ""
    return (
        f"charon does not offer {', '.join(sorted(lacking))}, which every tunnel proposes"
        f" (swanctl --list-algs); packages that are not installed: {', '.join(_not_installed()) or 'none'}"
    )


def _name(word: str) -> str:
    for pattern, name in _NAMES:
        if match := pattern.fullmatch(word):
            return match.expand(name)
    raise ValueError(f"{word}: charon's name for it is not known here")


def _not_installed() -> list[str]:
    """Of those that tests need."""
    listed = subprocess.run([_PACKAGES, "--list"], capture_output=True, text=True, check=True).stdout.split()
    query = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n", *listed]
    try:
        rows = subprocess.run(query, capture_output=True, text=True).stdout.splitlines()
    except FileNotFoundError:
        return []
    return sorted(set(listed) - {row.split()[0] for row in rows if row.endswith(" installed")})
