"""`invoke autoscaler.secret`, and how what it keeps comes into the cluster.

The Slack token and the webhook's address are in the environment's secrets store, under the names that the
spec gives them. `invoke cluster.up` makes a Secret of them, which the controller mounts.
"""

from __future__ import annotations

import sys

from infra.commands import pki_store
from infra.commands.cluster.notice_secrets import names
from infra.commands.environment import Project
from infra.commands.terminal import ask_secret, say
from infra.errors import UsageError

WAYS = ("slack", "webhook")


def keep(project: Project, way: str) -> int:
    """Keep what a person types, or what standard input has, in the store."""
    if way not in WAYS:
        raise UsageError(f"{way}: say slack, for its token, or webhook, for its address")
    name = names(project.cluster).get(way)
    if name is None:
        raise UsageError(
            f"{project.environment.spec_file} has no autoscaler.notices.{way}: write it there first"
        )
    asked = "The token (xoxb-…):" if way == "slack" else "The address (https://…):"
    value = (ask_secret(asked) if sys.stdin.isatty() else sys.stdin.read()).strip()
    _check(way, value)
    store = pki_store.store(project)
    store.put(name, value)
    say(f"{name} is kept in {store}; `invoke cluster.up {project.environment.options}` brings it")
    return 0


def _check(way: str, value: str) -> None:
    """``UsageError`` for what is certainly something else. It is not shown: it may be another secret."""
    if not value:
        raise UsageError("no value given: type it, or pipe it in")
    if any(letter.isspace() for letter in value):
        raise UsageError("it contains white space: it is neither a token nor an address")
    if way == "webhook" and not value.startswith(("https://", "http://")):
        raise UsageError("a webhook's address begins with https://")
    if way == "slack" and not value.startswith("xox"):
        raise UsageError("a Slack token begins with xox: a bot's with xoxb-")
