"""Secrets of alert receivers: `invoke cluster.alert-secret` stores them, `invoke cluster.up` creates the
Secret that Alertmanager mounts. In the store they have their names from the spec."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from infra.commands import pki_store
from infra.commands.environment import Project
from infra.commands.terminal import ask_secret, say
from infra.errors import UsageError

if TYPE_CHECKING:
    from infra.drive.kubernetes.api import Api
    from infra.drive.secrets import Store
    from infra.model.kubernetes import Alerts


def put(api: Api, store: Store, alerts: Alerts) -> tuple[str, tuple[str, ...]]:
    """Create the Secret from the store, or delete it if there are no receivers.

    Returns the action, and the receivers whose secrets the store does not have.
    """
    from infra.drive.kubernetes import apply
    from infra.render.kubernetes.charts.monitoring import ALERT_RECEIVERS, NAMESPACE

    wanted = alerts.secrets
    known = store.read(wanted.values()) if wanted else {}
    values = {receiver: known[name] for receiver, name in wanted.items() if name in known}
    missing = tuple(receiver for receiver, name in wanted.items() if name not in known)
    return apply.put_secret(api, NAMESPACE, ALERT_RECEIVERS, values), missing


def keep(project: Project, receiver: str) -> int:
    """Store a secret from a prompt or from standard input."""
    names = project.cluster.kubernetes.alerts.secrets
    if receiver not in names:
        fix = f"one of {', '.join(names)}" if names else "write kubernetes.alerts first"
        raise UsageError(f"{project.environment.spec_file} has no kubernetes.alerts.{receiver}: {fix}")
    asked = "The token (xoxb-…):" if receiver == "slack" else "The address (https://…):"
    value = (ask_secret(asked) if sys.stdin.isatty() else sys.stdin.read()).strip()
    _check(receiver, value)
    store = pki_store.store(project)
    store.put(names[receiver], value)
    options = project.environment.options
    say(f"{names[receiver]} is stored in {store}; `invoke cluster.up {options}` brings it to the cluster")
    return 0


def _check(receiver: str, value: str) -> None:
    """Raise ``UsageError`` for a value that is certainly wrong. It is not shown, as it may be another
    secret."""
    if not value:
        raise UsageError("no value given: type it, or pipe it in")
    if any(letter.isspace() for letter in value):
        raise UsageError("it contains white space: it is neither a token nor an address")
    if receiver != "slack" and not value.startswith(("https://", "http://")):
        raise UsageError("a webhook's address begins with https://")
    if receiver == "slack" and not value.startswith("xox"):
        raise UsageError("a Slack token begins with xox: a bot's with xoxb-")
