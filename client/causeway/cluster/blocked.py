"""Why a container does not start, with the fix: an image that cannot be pulled, a missing Secret. The kubelet
reports it in ``state.waiting`` of a container's status, and retries forever.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_PULLS = ("ErrImagePull", "ImagePullBackOff")
_REASONS = (
    *_PULLS, "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "CreateContainerConfigError",
    "CreateContainerError",
)  # fmt: skip
"""kubelet, pkg/kubelet/images/types.go and kuberuntime_container.go. Other reasons are stages of a start."""

_NOT_THERE = re.compile(r"not found|manifest unknown|does not exist|no match for platform", re.IGNORECASE)
_REFUSED = re.compile(
    r"unauthorized|denied|forbidden|no basic auth|authorization failed|authentication required", re.IGNORECASE
)
_SECRET = re.compile(r"secret \"(?P<name>[^\"]+)\" not found")
_KEY = re.compile(r"couldn't find key (?P<key>\S+) in Secret \S+/(?P<name>\S+)")


@dataclass(frozen=True)
class Blocked:
    """Why a container does not start."""

    reason: str
    """The kubelet's reason: ``ImagePullBackOff``."""
    what: str
    """Explanation for the user."""
    fix: str = ""
    lasts: bool = True
    """Whether a user has to fix it. A registry that does not answer is a temporary cause."""

    def __str__(self) -> str:
        return f"{self.what}; {self.fix}" if self.fix else self.what


def blocked(pod: Any) -> Blocked | None:
    """Return the first container of a pod that cannot start; None if all can.

    ``pod``: the API object.
    """
    status = pod.get("status", {})
    statuses = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    for each in statuses:
        waiting = each.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in _REASONS:
            return _described(pod, each, waiting["reason"], str(waiting.get("message", "")))
    return None


def _described(pod: Any, status: Mapping[str, Any], reason: str, message: str) -> Blocked:
    image = str(status.get("image", ""))
    if reason == "InvalidImageName":
        return Blocked(reason, f"{image!r} is not the name of an image", "write image: REGISTRY/NAME:TAG")
    if reason in _PULLS:
        return _of_pull(reason, image, message)
    if reason == "CreateContainerConfigError":
        namespace = str(pod["metadata"]["namespace"])
        if found := _SECRET.search(message):
            what, fix = missing_secret(namespace, found["name"], _keys(pod, found["name"]))
            return Blocked(reason, what, fix)
        if found := _KEY.search(message):
            return Blocked(reason, *missing_key(namespace, found["name"], found["key"]))
    what = f"its container cannot be created: {message or reason}"
    return Blocked(reason, what, lasts=reason != "CreateContainerError")


def _of_pull(reason: str, image: str, message: str) -> Blocked:
    said = message.rpartition(": ")[2] or reason
    # Registries answer "denied" for images that do not exist, too; both words may be in one message.
    if _REFUSED.search(message):
        fix = "check its name. Nodes can pull public images, and those of the account's registry (ECR)"
        return Blocked(reason, f"the registry refuses {image}: {said}", fix)
    if _NOT_THERE.search(message):
        return Blocked(reason, f"image {image} not found", "push it, or correct image: of the job")
    return Blocked(reason, f"{image} cannot be pulled: {message or reason}", lasts=False)


def _keys(pod: Any, secret: str) -> list[str]:
    """The variables that the job takes from a Secret."""
    sources = (
        variable.get("valueFrom", {}).get("secretKeyRef", {})
        for container in pod["spec"]["containers"]
        for variable in container.get("env", ())
    )
    return [*dict.fromkeys(each["key"] for each in sources if each.get("name") == secret)]


def missing_secret(namespace: str, name: str, keys: Sequence[str]) -> tuple[str, str]:
    """Return (error, fix) for a missing Secret."""
    literals = " ".join(f"--from-literal={key}=…" for key in keys)
    create = f"kubectl create secret generic {name} -n {namespace} {literals}".rstrip()
    return f"{namespace} has no Secret {name}", create


def missing_key(namespace: str, name: str, key: str) -> tuple[str, str]:
    """Return (error, fix) for a Secret that lacks the key."""
    patch = shlex.quote(json.dumps({"stringData": {key: "…"}}, ensure_ascii=False))
    what = f"the Secret {name} of {namespace} has no key {key}"
    return what, f"kubectl patch secret {name} -n {namespace} -p {patch}"
