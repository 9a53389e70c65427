"""Which certificate requests of kubelets a master approves: machines of pools that join, nodes that serve.

The API server, the controllers that approve and sign, kubeadm and kubectl are real; EC2 is the embedded AWS.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any

import embedded_aws
import pytest
from cookbooks.kitchen import run
from cookbooks.masters import KUBEADM_CONFIG, PARAMETER, PROGRAMS, program, python, settle
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from golden_clusters import golden
from kube.api import MERGE, Api, RefusedError, collection, node, pod
from kube.plane import SIGNERS, planes
from kube.plane import Plane as ControlPlane
from kube_tools import kubectl, need
from localaws.control import Control
from localaws.faults import FOREVER, throttling
from waiting import until
from web import Answer, pages

from infra.drive import localaws
from infra.drive.kubernetes import certificates
from infra.model.outputs import Addresses, Outputs
from infra.render.kubernetes import access, kubeadm
from infra.render.kubernetes.manifests import SYSTEM

KUBELET = """\
-----BEGIN CERTIFICATE REQUEST-----
MIH0MIGbAgEAMDkxFTATBgNVBAoTDHN5c3RlbTpub2RlczEgMB4GA1UEAxMXc3lz
dGVtOm5vZGU6aXAtMTAtMC0wLTQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARa
4WzUHaPaKCBlL250xgvJYgO7TuYIxgPpNGlqMxRgAuR/5MMiGggx+xaXgvDRlacn
v5uzDVxEBJCNw/l4swXroAAwCgYIKoZIzj0EAwIDSAAwRQIhAOE5uMYKyobC2LQ5
afl6BS/qapdEnUxxrOD86QLkiWOVAiA79JMb8FjzudbU2ISrxf6bRBKdfM5HTZ+z
H53dL2B5cQ==
-----END CERTIFICATE REQUEST-----
"""
"""What a kubelet 1.36.2 sent as ip-10-0-0-4."""
SERVER = """\
-----BEGIN CERTIFICATE REQUEST-----
MIIBHjCBxgIBADA3MRUwEwYDVQQKEwxzeXN0ZW06bm9kZXMxHjAcBgNVBAMTFXN5
c3RlbTpub2RlOmxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABHtM
NYrg5i/zniR7aHGXZdJ5CoNxSHLwuDWmQx0jtv224QowwlVR1pnro+Z+rYEqxH87
27ZjwaAAFNy5PHQjuyygLTArBgkqhkiG9w0BCQ4xHjAcMBoGA1UdEQQTMBGCCWxv
Y2FsaG9zdIcECgACDzAKBggqhkjOPQQDAgNHADBEAiAEdSMTF0etj0rIIrIzMNWT
Jc4sE0czkWnKGGxlaEDwhAIgM0t7/+hCL2RR+Kazdc7jHVx1n+ibdm2+yph7CoV7
Rj4=
-----END CERTIFICATE REQUEST-----
"""
"""What a kubelet 1.36.2 with our configuration sent for serving, as localhost with the address 10.0.2.15."""
SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
RACK = golden("research").sites[0].nodes[0]
MASTER = "10.0.0.200"
OUTPUTS = Outputs(instances={"master-1": Addresses(IPv4Address(MASTER), None)})
SERVING = "kubernetes.io/kubelet-serving"
USAGES = ("digital signature", "client auth")
SERVES = ("digital signature", "server auth")
NODES = ("system:nodes",)


def request(
    name: str,
    organizations: tuple[str, ...] = NODES,
    *alternatives: str,
    form: _ASN1Type = _ASN1Type.PrintableString,
    key: ec.EllipticCurvePrivateKey | None = None,
) -> str:
    """A request for ``system:node:<name>``, with a key that nobody keeps."""
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each, form) for each in organizations]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{name}", form))
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.RelativeDistinguishedName([each]) for each in subject])
    )
    if alternatives:
        names = x509.SubjectAlternativeName([alternative_name(each) for each in alternatives])
        builder = builder.add_extension(names, critical=False)
    signed = builder.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode()


def alternative_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.UniformResourceIdentifier(text) if "://" in text else x509.DNSName(text)


def names(*requests: str) -> Any:
    """What requests are for, as the program reads them: the node, hosts, addresses."""
    script = """
from kubernetes_node.certificate_request import read
read = [read(each.encode()) for each in given]
answer = [each and [each.node, *each.hosts, *map(str, each.addresses)] for each in read]
"""
    return python(script, requests)


def test_a_kubelets_request_is_read() -> None:
    assert names(KUBELET, request("ip-10-0-0-4"), request("master-1"), SERVER) == [
        ["ip-10-0-0-4"], ["ip-10-0-0-4"], ["master-1"], ["localhost", "localhost", "10.0.2.15"],
    ]  # fmt: skip
    long = ["n" * 50, "n" * 50, "10.0.0.4", "10.0.0.5", "2001:db8::4", "2001:db8::5"]
    assert names(request("master-1", NODES, "master-1", "10.0.0.4"), request(long[0], NODES, *long[1:])) == [
        ["master-1", "master-1", "10.0.0.4"],
        long,
    ]


def test_a_request_of_another_form_names_no_node() -> None:
    good = request("ip-10-0-0-4")
    others = {
        "a name that is no host and no address": request(
            "ip-10-0-0-4", NODES, "http://api.research.internal"
        ),
        "one more group": request("ip-10-0-0-4", (*NODES, "system:masters")),
        "another group": request("ip-10-0-0-4", ("system:masters",)),
        "no group": request("ip-10-0-0-4", ()),
        "another kind of string": request("ip-10-0-0-4", form=_ASN1Type.UTF8String),
        "two requests": good + KUBELET,
        "a text before it": f"ip-10-0-0-4\n{good}",
        "cut off": "\n".join([*good.splitlines()[:2], *good.splitlines()[3:], ""]),
        "bits that base64 ignores": KUBELET.replace("5cQ==", "5cR=="),
        "no base64": good.replace("\n", "\n=", 1),
        "nothing": "",
    }
    assert dict(zip(others, names(*others.values()), strict=True)) == dict.fromkeys(others)


# -- Real Kubernetes ---------------------------------------------------------------------------------------


def signing_request(name: str, pem: str, signer: str, usages: tuple[str, ...]) -> dict[str, Any]:
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": _base64(pem.encode()),
            "signerName": signer,
            "usages": list(usages),
        },
    }


@dataclass
class Plane:
    """A control plane as kubeadm would have made it, and the embedded AWS of its pools."""

    control: ControlPlane
    aws: localaws.Server
    requests: int = 0

    @property
    def admin(self) -> Api:
        return self.control.admin

    @property
    def root(self) -> Path:
        """A master's file system."""
        return self.control.folder / "master"

    def environment(self) -> dict[str, str]:
        folders = [str(Path(need("kubeadm")).parent), str(Path(kubectl()).parent), os.environ["PATH"]]
        cloud = localaws.environment(self.aws, "us-west-2")
        return {**cloud, "PATH": os.pathsep.join(folders)}

    def program(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return program(name, "--root", self.root, *arguments, **self.environment())

    def kubeadm(self, *arguments: str) -> str:
        return run(
            need("kubeadm"), *arguments, "--kubeconfig", self.root / "etc/kubernetes/admin.conf"
        ).strip()

    def client(self, service: str, region: str = "us-west-2") -> Any:
        return embedded_aws.client(self.aws, service, region)

    def approve(self) -> subprocess.CompletedProcess[str]:
        """One round of a master."""
        return self.program("approval", "--once")

    def ask(self, token: str, pem: str, usages: tuple[str, ...] = USAGES) -> str:
        """Make a request with a token; its name."""
        name = self._new_name()
        body = signing_request(name, pem, SIGNER, usages)
        self.control.bearer(token).create(body)
        return name

    def ask_as(self, node: str, pem: str, usages: tuple[str, ...] = SERVES) -> str:
        """Make a request for a serving certificate with a node's own certificate; its name."""
        name = self._new_name()
        own = self.control.somebody(f"system:node:{node}", "system:nodes")
        own.create(signing_request(name, pem, SERVING, usages))
        return name

    def ask_to_serve(self, node: str, *names: str) -> str:
        """The same for these names and addresses."""
        return self.ask_as(node, request(node, NODES, *names))

    def _new_name(self) -> str:
        self.requests += 1
        return f"request-{self.requests}"

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.admin.call("GET", f"{REQUESTS}/{name}").get("status", {})
        return status

    def answer(self, name: str) -> tuple[str, str] | None:
        """(type, reason) of its one condition."""
        conditions = self.status(name).get("conditions", [])
        assert len(conditions) < 2
        return (conditions[0]["type"], conditions[0]["reason"]) if conditions else None

    def is_approved_by_kubeadm(self, group: str) -> bool:
        """What the controller asks before it approves a request (Kubernetes, "TLS bootstrapping")."""
        asked = {"group": "certificates.k8s.io", "resource": "certificatesigningrequests"}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {
                "user": "system:bootstrap:abcdef",
                "groups": [group, "system:bootstrappers", "system:authenticated"],
                "resourceAttributes": {**asked, "subresource": "nodeclient", "verb": "create"},
            },
        }
        return bool(self.admin.create(review)["status"]["allowed"])

    def certificate(self, name: str) -> x509.Certificate:
        """The one that the controller signed."""
        text = until(lambda: self.status(name).get("certificate"))
        return x509.load_pem_x509_certificate(base64.b64decode(text))


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    folder = tmp_path_factory.mktemp("approval")
    flags = {
        each["name"]: each["value"]
        for each in kubeadm.cluster_configuration(golden("research"))["apiServer"]["extraArgs"]
    }
    # By what the API server knows kubelets.
    authority = flags["kubelet-certificate-authority"].replace("/etc/kubernetes", str(folder))
    more = [f"--kubelet-certificate-authority={authority}", "--kubelet-preferred-address-types=InternalIP"]
    with planes(folder, flags=more) as control, embedded_aws.embedded(folder / "aws") as aws:
        plane = Plane(control, aws)
        _master(plane)
        config = folder / "kubeadm.yaml"
        config.write_text(KUBEADM_CONFIG.format(endpoint=control.address, pki=folder / "pki"))
        plane.kubeadm("init", "phase", "bootstrap-token", "--skip-token-print", f"--config={config}")
        plane.kubeadm("init", "phase", "upload-config", "all", f"--config={config}")
        plane.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
        plane.admin.apply_all(access.joining(golden("research"), OUTPUTS))
        with control.controllers(*SIGNERS):
            yield plane


def _master(plane: Plane) -> None:
    """What a master has in /etc."""
    kubernetes = plane.root / "etc/kubernetes"
    (kubernetes / "pki").mkdir(parents=True)
    (kubernetes / "pki/ca.crt").write_text(plane.control.keys.ca.certificate)
    (kubernetes / "admin.conf").write_text(plane.control.kubeconfig.read_text())
    regions = {"region": "us-west-2", "regions": ["us-east-1", "us-west-2"]}
    settle(plane.root, endpoint=plane.control.address, join={"parameter": PARAMETER, **regions})


def _base64(text: bytes) -> str:
    return base64.b64encode(text).decode()


@pytest.fixture(scope="module")
def token(plane: Plane) -> str:
    """What a master creates and a machine of a pool fetches."""
    done = plane.program("token")
    assert done.returncode == 0, done.stderr
    parameter = plane.client("ssm").get_parameter(Name=PARAMETER, WithDecryption=True)["Parameter"]
    return str(json.loads(parameter["Value"])["token"])


@dataclass(frozen=True)
class Instance:
    id: str
    name: str
    """That of its node."""


@dataclass
class Machines:
    """Instances: of pools in two regions, of another cluster, and of no Auto Scaling group."""

    west: list[Instance]
    east: list[Instance]
    foreign: list[Instance]
    single: list[Instance]


@pytest.fixture(scope="module")
def machines(plane: Plane) -> Machines:
    def instances(region: str, network: int, cluster: str, group: str | None, count: int) -> list[Instance]:
        ec2 = plane.client("ec2", region)
        vpc = ec2.create_vpc(CidrBlock=f"10.{network}.0.0/16")["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.{network}.0.0/24")["Subnet"]["SubnetId"]
        if group is None:
            tags = [{"ResourceType": "instance", "Tags": [{"Key": "cluster", "Value": cluster}]}]
            ec2.run_instances(
                ImageId="ami-1", MinCount=count, MaxCount=count, SubnetId=subnet, TagSpecifications=tags
            )
        else:
            ec2.create_launch_template(
                LaunchTemplateName=group, LaunchTemplateData={"ImageId": "ami-1", "InstanceType": "m5.large"}
            )
            plane.client("autoscaling", region).create_auto_scaling_group(
                AutoScalingGroupName=group,
                MinSize=0,
                MaxSize=count,
                DesiredCapacity=count,
                VPCZoneIdentifier=subnet,
                LaunchTemplate={"LaunchTemplateName": group, "Version": "$Latest"},
                Tags=[{"Key": "cluster", "Value": cluster, "PropagateAtLaunch": True}],
            )
        described = ec2.describe_instances(Filters=[{"Name": "subnet-id", "Values": [subnet]}])
        return [
            Instance(each["InstanceId"], each["PrivateDnsName"].partition(".")[0])
            for reservation in described["Reservations"]
            for each in reservation["Instances"]
        ]

    return Machines(
        west=instances("us-west-2", 0, "research", "research-gpu", 8),
        east=instances("us-east-1", 1, "research", "research-gpu", 2),
        foreign=instances("us-west-2", 2, "other", "other-gpu", 1),
        single=instances("us-west-2", 3, "research", None, 1),
    )


def joined(plane: Plane, name: str, instance: str, *, version: str = "v1.36.2") -> dict[str, Any]:
    """The Node of an instance."""
    spec = {"providerID": f"aws:///us-west-2a/{instance}"}
    created: dict[str, Any] = plane.admin.create({**node(name, version=version), "spec": spec})
    return created


def test_new_instances_of_pools_get_certificates(plane: Plane, token: str, machines: Machines) -> None:
    requests = {
        machines.west[0].name: plane.ask(token, KUBELET),
        machines.east[0].name: plane.ask(token, request(machines.east[0].name)),
    }
    assert machines.west[0].name == "ip-10-0-0-4", "the one that the kubelet's request is for"
    with ThreadPoolExecutor() as masters:
        rounds = list(masters.map(lambda _: plane.approve(), range(3)))
    assert [done.returncode for done in rounds] == [0, 0, 0], [done.stderr for done in rounds]
    for name, request_name in requests.items():
        assert plane.answer(request_name) == ("Approved", "CausewayPoolInstance")
        assert (
            plane.certificate(request_name).subject.rfc4514_string()
            == f"CN=system:node:{name},O=system:nodes"
        )


def test_other_names_are_denied(plane: Plane, token: str, machines: Machines) -> None:
    ended, member, stopped, new = machines.west[1:5]
    plane.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=ended.id, ShouldDecrementDesiredCapacity=True
    )
    plane.client("ec2").stop_instances(InstanceIds=[stopped.id])
    joined(plane, member.name, member.id)
    admin = ("digital signature", "client auth", "server auth")
    no_instance = {
        "a master": "master-1",
        "a machine in a rack": "titan-01",
        "no instance": "ip-10-0-0-250",
        "no address": "ip-999-0-0-1",
        "an instance that has ended": ended.name,
        "an instance that is stopped": stopped.name,
        "an instance of another cluster": machines.foreign[0].name,
        "an instance of no pool": machines.single[0].name,
    }
    denied = {
        **{what: (plane.ask(token, request(name)), "NotAPoolInstance") for what, name in no_instance.items()},
        "a node that has joined": (plane.ask(token, request(member.name)), "NodeHasJoined"),
        "one more name": (plane.ask(token, request(new.name, NODES, "api.internal")), "NotAKubeletRequest"),
        "one more group": (
            plane.ask(token, request(new.name, (*NODES, "system:masters"))),
            "NotAKubeletRequest",
        ),
        "more usages": (plane.ask(token, request(new.name), admin), "NotAKubeletRequest"),
    }
    assert_denied(plane, denied)


def assert_denied(plane: Plane, denied: Mapping[str, tuple[str, str]]) -> None:
    """``denied``: what is asked for → the request, and the reason why a master denies it."""
    done = plane.approve()
    assert done.returncode == 0, done.stderr
    answers = {what: plane.answer(name) for what, (name, _) in denied.items()}
    assert answers == {what: ("Denied", f"Causeway{reason}") for what, (_, reason) in denied.items()}
    assert not any("certificate" in plane.status(name) for name, _ in denied.values())


def test_kubeadm_approves_no_request_of_pools(plane: Plane, token: str, machines: Machines) -> None:
    """As it does those of its own group, for any name."""
    ours = plane.ask(token, request(machines.west[4].name))
    other = plane.kubeadm("token", "create")
    theirs, odd = (plane.ask(other, request("master-1", NODES, *more)) for more in ((), ("api.internal",)))
    assert plane.certificate(theirs)
    assert plane.answer(ours) is None
    groups = [access.JOIN_TOKENS, "system:bootstrappers:kubeadm:default-node-token"]
    assert [plane.is_approved_by_kubeadm(each) for each in groups] == [False, True]
    assert plane.approve().returncode == 0
    assert plane.answer(ours) == ("Approved", "CausewayPoolInstance")
    assert plane.answer(odd) is None  # with another token, it is not ours to deny


def test_requests_wait_while_a_region_is_away(plane: Plane, token: str, machines: Machines) -> None:
    west = plane.ask(token, request(machines.west[5].name))
    east = plane.ask(token, request(machines.east[1].name))
    master = plane.ask(token, request("master-1"))
    Control(plane.aws).order(throttling("DescribeInstances", FOREVER, region="us-west-2"))
    try:
        done = plane.approve()
    finally:
        Control(plane.aws).clear_faults()
    assert (done.returncode, "us-west-2" in done.stderr) == (1, True), done.stderr
    assert plane.answer(west) is None
    assert plane.answer(east) == ("Approved", "CausewayPoolInstance")
    assert plane.answer(master) == ("Denied", "CausewayNotAPoolInstance")
    assert plane.approve().returncode == 0
    assert plane.answer(west) == ("Approved", "CausewayPoolInstance")


def test_a_machine_that_has_not_joined_may_try_again(plane: Plane, token: str, machines: Machines) -> None:
    machine = machines.west[6]
    first, second = (plane.ask(token, request(machine.name)) for _ in range(2))
    assert plane.approve().returncode == 0
    # Its Node may be there before it has reported anything.
    path = f"/api/v1/nodes/{joined(plane, machine.name, machine.id, version='')['metadata']['name']}"
    third = plane.ask(token, request(machine.name))
    assert plane.approve().returncode == 0
    approved = ("Approved", "CausewayPoolInstance")
    assert [plane.answer(each) for each in (first, second, third)] == [approved] * 3

    plane.admin.call("DELETE", path)
    joined(plane, machine.name, machine.id)
    late = plane.ask(token, request(machine.name))
    assert plane.approve().returncode == 0
    assert plane.answer(late) == ("Denied", "CausewayNodeHasJoined")


def test_an_address_that_another_instance_had(plane: Plane, token: str, machines: Machines) -> None:
    machine = machines.west[7]
    old = joined(plane, machine.name, "i-0123456789abcdef0")
    request_name = plane.ask(token, request(machine.name))
    done = plane.approve()
    assert (done.returncode, plane.answer(request_name)) == (0, None), done.stderr
    names = [each["metadata"]["name"] for each in plane.admin.call("GET", collection(old))["items"]]
    assert machine.name not in names
    assert plane.approve().returncode == 0
    assert plane.answer(request_name) == ("Approved", "CausewayPoolInstance")


# -- Serving certificates ----------------------------------------------------------------------------------


def test_nodes_get_serving_certificates_for_their_own_addresses(plane: Plane, machines: Machines) -> None:
    """And another one when they renew it."""
    instance = machines.east[1]
    address = instance.name.removeprefix("ip-").replace("-", ".")
    requests = [
        plane.ask_to_serve(RACK.name, RACK.name, str(RACK.address)),
        plane.ask_to_serve("master-1", "master-1", MASTER),
        plane.ask_to_serve(instance.name, instance.name, address),
    ]
    assert plane.approve().returncode == 0
    requests.append(plane.ask_to_serve(RACK.name, RACK.name, str(RACK.address)))
    assert plane.approve().returncode == 0
    assert [plane.answer(each) for each in requests] == [("Approved", "CausewayOwnAddresses")] * 4
    certificate = plane.certificate(requests[1])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [each.value for each in names] == ["master-1", ip_address(MASTER)]


def test_names_and_addresses_of_others_are_denied(plane: Plane, machines: Machines) -> None:
    own = machines.west[0].name
    address = own.removeprefix("ip-").replace("-", ".")
    with pytest.raises(RefusedError, match=f"system:node:{own}"):
        plane.ask_as(own, request("master-1", NODES, "master-1", MASTER))
    gone, single = "ip-10-0-0-250", machines.single[0].name
    denied = {
        "the API": (plane.ask_to_serve(RACK.name, "api.research.internal"), "NotItsOwn"),
        "a service": (plane.ask_to_serve(RACK.name, "kubernetes.default"), "NotItsOwn"),
        "a master's address": (
            plane.ask_to_serve(RACK.name, RACK.name, str(RACK.address), MASTER),
            "NotItsOwn",
        ),
        "another instance's address": (plane.ask_to_serve(own, own, address, "10.0.0.9"), "NotItsOwn"),
        "no names": (plane.ask_to_serve(own), "NotAKubeletRequest"),
        "a page": (plane.ask_to_serve(own, f"https://{own}"), "NotAKubeletRequest"),
        "no server": (plane.ask_as(own, request(own, NODES, own, address), USAGES), "NotAKubeletRequest"),
        "a machine that has gone": (plane.ask_to_serve(gone, gone, "10.0.0.250"), "UnknownNode"),
        "an instance of no pool": (plane.ask_to_serve(single, "x"), "UnknownNode"),
    }
    assert_denied(plane, denied)


def test_servings_wait_for_the_spec_and_for_regions(plane: Plane, machines: Machines) -> None:
    west, east = (each[0].name for each in (machines.west, machines.east))
    first, second = (plane.ask_to_serve(each, each) for each in (west, east))
    Control(plane.aws).order(throttling("DescribeInstances", FOREVER, region="us-west-2"))
    try:
        assert plane.approve().returncode == 1
    finally:
        Control(plane.aws).clear_faults()
    assert (plane.answer(first), plane.answer(second)) == (None, ("Approved", "CausewayOwnAddresses"))
    assert plane.approve().returncode == 0
    assert plane.answer(first) == ("Approved", "CausewayOwnAddresses")
    path = f"/api/v1/namespaces/{SYSTEM}/configmaps/{access.ADDRESSES}"
    addresses = plane.admin.call("GET", path)
    plane.admin.call("DELETE", path)
    rack = plane.ask_to_serve(RACK.name, RACK.name)
    assert plane.approve().returncode == 0
    assert plane.answer(rack) is None, "cluster.up has not come to it"
    plane.admin.create({**addresses, "metadata": {"name": access.ADDRESSES, "namespace": SYSTEM}})
    assert plane.approve().returncode == 0
    assert plane.answer(rack) == ("Approved", "CausewayOwnAddresses")


def test_the_api_server_talks_to_kubelets_that_the_cluster_has_signed(plane: Plane, tmp_path: Path) -> None:
    """The kubelet is a stand-in that answers with a log, first with a certificate of its own making."""
    key = ec.generate_private_key(ec.SECP256R1())
    asked = request("loopback", NODES, "loopback", "127.0.0.1", key=key)
    self_made = certificates.authority("loopback", datetime.now(UTC))
    files = (tmp_path / "kubelet.crt", tmp_path / "kubelet.key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def shows(certificate: str, private: str) -> None:
        for file, text in zip(files, (certificate, private), strict=True):
            file.write_text(text)
        context.load_cert_chain(*files)

    shows(self_made.certificate, self_made.key)
    with pages(lambda *_: Answer(200, b"line\n"), context) as port:
        loopback = node("loopback")
        loopback["status"]["addresses"] = [{"type": "InternalIP", "address": "127.0.0.1"}]
        loopback["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": port}}
        plane.admin.create(loopback)
        plane.admin.create(pod("talks", "loopback"))
        log = "/api/v1/namespaces/default/pods/talks/log"
        with pytest.raises(RefusedError, match="certificate"):
            plane.admin.call("GET", log)
        path = f"/api/v1/namespaces/{SYSTEM}/configmaps/{access.ADDRESSES}"
        data = {"data": {"loopback": "127.0.0.1"}}
        plane.admin.call("PATCH", path, data, MERGE)
        name = plane.ask_as("loopback", asked)
        assert plane.approve().returncode == 0
        signed = plane.certificate(name).public_bytes(serialization.Encoding.PEM).decode()
        shows(signed, private_text(key))
        assert plane.admin.text(log) == "line\n"


def private_text(key: ec.EllipticCurvePrivateKey) -> str:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def test_kubeadm_joins_with_the_rights_of_the_group(plane: Plane, token: str, tmp_path: Path) -> None:
    """As far as it goes without a container runtime: it reads what it needs from the cluster."""
    config = tmp_path / "join.yaml"
    discovery = plane.control.kubeconfig_with("discovery", token=token)
    document = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {"file": {"kubeConfigPath": str(discovery)}},
        "nodeRegistration": {"name": "ip-10-0-0-5", "criSocket": f"unix://{tmp_path}/none.sock"},
    }
    config.write_text(json.dumps(document))
    run(need("kubeadm"), "join", "phase", "preflight", "--config", config, "--ignore-preflight-errors=all")


def test_the_service_goes_on_answering(plane: Plane, token: str, machines: Machines) -> None:
    command = [sys.executable, "-B", "-m", "kubernetes_node.approval", "--root", str(plane.root)]
    process = subprocess.Popen(
        command,
        env={**os.environ, **plane.environment(), "PYTHONPATH": str(PROGRAMS)},
        stdin=subprocess.DEVNULL,
    )
    try:
        for _ in range(2):
            name = plane.ask(token, request("master-1"))
            assert until(partial(plane.answer, name)) == ("Denied", "CausewayNotAPoolInstance")
    finally:
        process.terminate()
        process.wait()


def test_masters_and_manifests_name_one_group() -> None:
    group = python("from kubernetes_node.token import GROUP\nanswer = GROUP")
    assert group == access.JOIN_TOKENS
