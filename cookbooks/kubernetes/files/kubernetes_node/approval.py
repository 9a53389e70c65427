"""Approves certificate requests of kubelets; kube-controller-manager then signs them.

Client certificates of machines of pools that join. Any process with a node's instance role can read the
token of the pools, and may request a certificate of any node with it. A request is approved if the node's
name is that of a running instance of this cluster's pools that has not joined yet.

Serving certificates of nodes. Any process with a node's client certificate may request one for any host. A
request is approved if it is for the node's own name and addresses: those that the cluster's specification
gives it (the ConfigMap ``node-addresses``), or those that EC2 gives an instance of the pools.

Others are denied. A request stays pending while EC2 or the API does not answer.

Each master runs this. Where another master was faster, the API answers 409, which is ignored.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import re
import sys
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from kubernetes_node.certificate_request import Request
from kubernetes_node.certificate_request import read as read_request
from kubernetes_node.command import attempt, run
from kubernetes_node.settings import Failed, Paths, Settings, read
from kubernetes_node.token import GROUP

CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
ADDRESSES = "/api/v1/namespaces/causeway-system/configmaps/node-addresses"
"""Name of a machine of the spec → its address (``infra/render/kubernetes/access.py``)."""
PURPOSES = {CLIENT: "client auth", SERVING: "server auth"}
COMMON = ({"digital signature"}, {"digital signature", "key encipherment"})
"""What a kubelet requests beside the purpose; the second only with RSA keys (Kubernetes,
``DefaultKubeletClientGetUsages``, ``DefaultKubeletServingGetUsages``)."""

PAUSE, LONGEST_PAUSE = 5.0, 60.0
"""Seconds between two rounds; doubled after each round that failed."""
VALUES = 200
"""Values that EC2 takes in one filter (EC2 API Reference, DescribeInstances)."""

NODE = "system:node:"
_IP_NAME = re.compile(r"ip-(\d+)-(\d+)-(\d+)-(\d+)")


_ANOTHER_FORM = "A kubelet requests its certificate in another form"


@dataclass(frozen=True)
class Answer:
    """What a request gets."""

    approved: bool
    reason: str
    message: str


@dataclass(frozen=True)
class Instance:
    """A running instance of the pools."""

    id: str
    addresses: frozenset[str]


def is_waiting(request: dict[str, Any]) -> bool:
    """Whether a request is ours to answer, and has no answer yet: a client's that was made with a token of
    the pools, or a node's for serving."""
    spec = request["spec"]
    who, groups = spec["username"], spec.get("groups", ())
    ours = {
        CLIENT: who.startswith("system:bootstrap:") and GROUP in groups,
        SERVING: who.startswith(NODE) and "system:nodes" in groups,
    }
    return ours.get(spec["signerName"], False) and not request.get("status", {}).get("conditions")


def requested(request: dict[str, Any]) -> Request | None:
    """What is requested; None if a kubelet would not have made this request."""
    spec = request["spec"]
    usages, purpose = set(spec.get("usages", ())), PURPOSES[spec["signerName"]]
    found = read_request(base64.b64decode(spec["request"]))
    if found is None or purpose not in usages or usages - {purpose} not in COMMON:
        return None
    serves = bool(found.hosts or found.addresses)
    if spec["signerName"] == CLIENT:
        return None if serves else found
    return found if serves and spec["username"] == f"{NODE}{found.node}" else None


def address_of(name: str) -> str | None:
    """The address in ``ip-10-0-0-4``. Machines of pools join with this name (EC2 User Guide, "IP name")."""
    found = _IP_NAME.fullmatch(name)
    try:
        return str(IPv4Address(".".join(found.groups()))) if found else None
    except ValueError:
        return None


def has_joined(node: dict[str, Any]) -> bool:
    """Whether a kubelet has registered it."""
    return bool(node.get("status", {}).get("nodeInfo", {}).get("kubeletVersion"))


def instance_of(node: dict[str, Any]) -> str:
    """``aws:///us-west-2a/i-0123456789abcdef0`` → ``i-0123456789abcdef0``."""
    return str(node.get("spec", {}).get("providerID", "")).rpartition("/")[2]


class Approver:
    """The requests of a cluster, and its instances."""

    def __init__(self, paths: Paths, settings: Settings) -> None:
        self._kubectl = ("kubectl", "--kubeconfig", paths.admin, "--request-timeout", "30s")
        self._settings = settings
        self._clients: dict[str, Any] = {}

    def answer_all(self) -> None:
        """One round. Failed after it, where some requests could not be answered: they stay pending."""
        listed = run(*self._kubectl, "get", "--raw", REQUESTS)
        waiting = [(each, requested(each)) for each in json.loads(listed)["items"] if is_waiting(each)]
        instances, problems = self._instances({asked.node for _, asked in waiting if asked})
        complete = not problems
        serving = any(request["spec"]["signerName"] == SERVING for request, _ in waiting)
        of_the_spec = self._addresses() if serving else None
        for request, asked in waiting:
            try:
                if asked is None:
                    answer = Answer(False, "NotAKubeletRequest", _ANOTHER_FORM)
                elif request["spec"]["signerName"] == SERVING:
                    answer = _of_server(asked, of_the_spec, instances.get(asked.node), complete=complete)
                else:
                    answer = self._of_client(asked.node, instances.get(asked.node), complete=complete)
                if answer is not None:
                    self._give(request, answer)
            except Failed as problem:
                problems.append(str(problem))
        if problems:
            raise Failed("; ".join(problems))

    def _of_client(self, name: str, instance: Instance | None, *, complete: bool) -> Answer | None:
        """The answer; None to look again in the next round."""
        if instance is None:
            if not complete and address_of(name):
                return None
            message = f"No running instance of this cluster's pools has the name {name}"
            return Answer(False, "NotAPoolInstance", message)
        node = self._node(name)
        if has_joined(node) and instance_of(node) not in ("", instance.id):
            # The address has gone to another instance, so the one that this Node was for has ended.
            self._delete(node)
            return None
        if has_joined(node):
            message = f"{name} has joined; if {instance.id} has to join again, delete the Node first"
            return Answer(False, "NodeHasJoined", message)
        return Answer(True, "PoolInstance", f"{name} is {instance.id}, which has not joined yet")

    def _node(self, name: str) -> dict[str, Any]:
        """Empty if there is none."""
        return self._found(f"/api/v1/nodes/{name}")

    def _addresses(self) -> dict[str, str] | None:
        """Those of machines of the spec; None before ``cluster.up`` has written them."""
        return self._found(ADDRESSES).get("data")

    def _found(self, path: str) -> dict[str, Any]:
        ended = attempt((*self._kubectl, "get", "--raw", path))
        if ended.returncode and "(NotFound)" not in ended.stderr:
            raise Failed(f"{path}: {ended.stderr.strip()}")
        found: dict[str, Any] = {} if ended.returncode else json.loads(ended.stdout)
        return found

    def _give(self, request: dict[str, Any], answer: Answer) -> None:
        name = request["metadata"]["name"]
        condition = {
            "type": "Approved" if answer.approved else "Denied",
            "status": "True",
            "reason": f"Causeway{answer.reason}",
            "message": answer.message,
        }
        body = json.dumps({**request, "status": {"conditions": [condition]}})
        command = (*self._kubectl, "replace", "--raw", f"{REQUESTS}/{name}/approval", "--filename", "-")
        ended = attempt(command, stdin=body)
        if ended.returncode == 0:
            print(f"{name}: {condition['type']}: {answer.message}", flush=True)
        elif "(Conflict)" not in ended.stderr and "(NotFound)" not in ended.stderr:
            raise Failed(f"{name}: {ended.stderr.strip()}")

    def _delete(self, node: dict[str, Any]) -> None:
        about = node["metadata"]
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": about["uid"]}}
        command = (*self._kubectl, "delete", "--raw", f"/api/v1/nodes/{about['name']}", "--filename", "-")
        ended = attempt(command, stdin=json.dumps(options))
        if ended.returncode == 0:
            print(f"Deleted the Node {about['name']}: its instance {instance_of(node)} has ended", flush=True)

    def _instances(self, names: Collection[str]) -> tuple[dict[str, Instance], list[str]]:
        """Running instances of the pools by name, and the regions that could not be asked."""
        from botocore.exceptions import BotoCoreError, ClientError

        found: dict[str, Instance] = {}
        problems = []
        addresses = sorted(filter(None, map(address_of, names)))
        for region in self._settings.regions if addresses else ():
            try:
                for first in range(0, len(addresses), VALUES):
                    found.update(self._described(region, addresses[first : first + VALUES]))
            except (BotoCoreError, ClientError) as problem:
                problems.append(f"EC2 in {region}: {problem}")
        return found, problems

    def _described(self, region: str, addresses: list[str]) -> Iterable[tuple[str, Instance]]:
        import boto3
        from botocore.config import Config

        if region not in self._clients:
            config = Config(connect_timeout=5, read_timeout=10, retries={"max_attempts": 2})
            self._clients[region] = boto3.client("ec2", region_name=region, config=config)
        wanted = {
            "private-ip-address": addresses,
            "instance-state-name": ["pending", "running"],
            "tag:cluster": [self._settings.cluster],
            # Only Auto Scaling can set it. Masters, SSH nodes and gateways are in no group.
            "tag-key": ["aws:autoscaling:groupName"],
        }
        filters = [{"Name": name, "Values": values} for name, values in wanted.items()]
        for page in self._clients[region].get_paginator("describe_instances").paginate(Filters=filters):
            for reservation in page["Reservations"]:
                for instance in reservation["Instances"]:
                    own = {
                        each["PrivateIpAddress"]
                        for interface in instance.get("NetworkInterfaces", ())
                        for each in (interface, *interface.get("PrivateIpAddresses", ()))
                    }
                    own.add(instance["PrivateIpAddress"])
                    name = instance["PrivateDnsName"].partition(".")[0]
                    yield name, Instance(instance["InstanceId"], frozenset(own))


def _of_server(
    asked: Request, of_the_spec: dict[str, str] | None, instance: Instance | None, *, complete: bool
) -> Answer | None:
    """The answer; None to look again in the next round."""
    if of_the_spec is not None and asked.node in of_the_spec:
        own = {of_the_spec[asked.node]}
    elif instance is not None:
        own = set(instance.addresses)
    elif of_the_spec is None or (not complete and address_of(asked.node)):
        return None
    else:
        message = f"{asked.node} is not a machine of the spec, nor a running instance of this cluster's pools"
        return Answer(False, "UnknownNode", message)
    others = [each for each in asked.hosts if each != asked.node]
    others += [str(each) for each in asked.addresses if str(each) not in own]
    if others:
        return Answer(False, "NotItsOwn", f"{asked.node} has the addresses {sorted(own)}, and not {others}")
    return Answer(True, "OwnAddresses", f"{asked.node} has these addresses")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="causeway-join-approve", description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path("/"), help="where the system is, if not at /")
    parser.add_argument("--once", action="store_true", help="answer what is pending, and end")
    wanted = parser.parse_args(arguments)
    paths = Paths(wanted.root)
    approver, pause = None, PAUSE
    while True:
        try:
            approver = approver or Approver(paths, read(paths))
            approver.answer_all()
            pause, code = PAUSE, 0
        except Failed as problem:
            print(f"causeway-join-approve: {problem}", file=sys.stderr, flush=True)
            pause, code = min(2 * pause, LONGEST_PAUSE), 1
        if wanted.once:
            return code
        time.sleep(random.uniform(0.5 * pause, pause))  # noqa: S311  nothing is kept secret by it


if __name__ == "__main__":
    raise SystemExit(main())
