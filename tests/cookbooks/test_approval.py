"""Which certificate requests of machines of pools a master approves.

The API server, the controllers that approve and sign, kubeadm and kubectl are real; EC2 is the embedded AWS.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cookbooks.etcd_lab import PROGRAMS
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from drive.kubernetes.apiserver import NAME, Server, node, running
from golden_clusters import golden
from kube_tools import kubectl, need
from render.kubernetes.policy_world import Api, collection

from infra.drive import localaws
from infra.drive.kubernetes import secrets
from infra.drive.kubernetes.secrets import Keys
from infra.drive.secrets.local import LocalStore
from infra.localaws.faults import FOREVER, throttling
from infra.render.kubernetes import joining

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
PARAMETER = "/causeway/research/node/kubernetes-join"
SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CONTROLLERS = ("approving", "signing")
USAGES = ("digital signature", "client auth")
NODES = ("system:nodes",)


def request(
    name: str,
    organizations: tuple[str, ...] = NODES,
    alternative: str | None = None,
    form: _ASN1Type = _ASN1Type.PrintableString,
) -> str:
    """A request for ``system:node:<name>``, with a key that nobody keeps."""
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each, form) for each in organizations]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{name}", form))
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.RelativeDistinguishedName([each]) for each in subject])
    )
    if alternative:
        names = x509.SubjectAlternativeName([x509.DNSName(alternative)])
        builder = builder.add_extension(names, critical=False)
    made = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def names(*requests: str) -> list[str | None]:
    """The nodes that requests are for, as the program reads them."""
    script = (
        "import json, sys\n"
        "from kubernetes_node.certificate_request import node_name\n"
        "print(json.dumps([node_name(each.encode()) for each in json.load(sys.stdin)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", script],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(PROGRAMS)},
    )
    found: list[str | None] = json.loads(done.stdout)
    return found


def test_a_kubelets_request_is_read() -> None:
    assert names(KUBELET, request("ip-10-0-0-4"), request("master-1")) == [
        "ip-10-0-0-4", "ip-10-0-0-4", "master-1",
    ]  # fmt: skip


def test_a_request_of_another_form_names_no_node() -> None:
    good = request("ip-10-0-0-4")
    others = {
        "a subject alternative name": request("ip-10-0-0-4", alternative="api.research.internal"),
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


@dataclass
class Plane:
    """A control plane as kubeadm would have made it, and the embedded AWS of its pools."""

    server: Server
    admin: Api
    aws: localaws.Server
    folder: Path
    authority: str
    made: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        """A master's file system."""
        return self.folder / "master"

    def environment(self) -> dict[str, str]:
        folders = [str(Path(need("kubeadm")).parent), str(Path(kubectl()).parent), os.environ["PATH"]]
        cloud = localaws.environment(self.aws, "us-west-2")
        return {**os.environ, **cloud, "PYTHONPATH": str(PROGRAMS), "PATH": os.pathsep.join(folders)}

    def program(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-B",
            "-m",
            f"kubernetes_node.{name}",
            "--root",
            str(self.root),
            *arguments,
        ]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=self.environment(), timeout=300
        )

    def kubeadm(self, *arguments: str) -> str:
        config = self.root / "etc/kubernetes/admin.conf"
        command = [need("kubeadm"), *arguments, "--kubeconfig", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def client(self, service: str, region: str) -> Any:
        import boto3

        about = localaws.environment(self.aws, region)
        return boto3.client(
            service,
            region_name=region,
            endpoint_url=about["AWS_ENDPOINT_URL"],
            aws_access_key_id=about["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=about["AWS_SECRET_ACCESS_KEY"],
        )

    def approve(self) -> subprocess.CompletedProcess[str]:
        """One round of a master."""
        return self.program("approval", "--once")

    def ask(self, token: str, pem: str, usages: tuple[str, ...] = USAGES) -> str:
        """Make a request with a token; its name."""
        name = f"request-{len(self.made)}"
        self.made.append(name)
        body = {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {
                "request": base64.b64encode(pem.encode()).decode(),
                "signerName": SIGNER,
                "usages": list(usages),
            },
        }
        context = ssl.create_default_context(cadata=self.authority)
        context.check_hostname = False  # It is asked by its address, and its name is another.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        url = f"https://{self.server.address}{REQUESTS}"
        with opener.open(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=60):
            return name

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.admin.call("GET", f"{REQUESTS}/{name}").get("status", {})
        return found

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


def until(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.1)
    raise AssertionError("nothing came of it")


CONFIG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.2
controlPlaneEndpoint: {address}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {{advertiseAddress: 192.0.2.10}}
nodeRegistration: {{name: master-1, criSocket: "unix:///run/containerd/containerd.sock"}}
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    folder = tmp_path_factory.mktemp("approval")
    store = LocalStore("test", folder / ".secrets", {"XDG_CONFIG_HOME": str(folder / "config")})
    keys = secrets.made(store, datetime.now(UTC))
    with ExitStack() as stack:
        server = stack.enter_context(running(folder, keys))
        found = Plane(
            server,
            Api(server, keys, folder, "admin", "system:masters"),
            localaws.start(folder / "aws", "joining"),
            folder,
            keys.ca.certificate,
        )
        stack.callback(localaws.stop, folder / "aws")
        _master(found, keys)
        config = folder / "kubeadm.yaml"
        config.write_text(CONFIG.format(address=server.address))
        found.kubeadm("init", "phase", "bootstrap-token", "--skip-token-print", f"--config={config}")
        found.kubeadm("init", "phase", "upload-config", "all", f"--config={config}")
        for each in joining.objects(golden("research"))["rights.yaml"]:
            found.admin.apply(each)
        log = stack.enter_context((folder / "controllers.log").open("ab"))
        names = ",".join(f"certificatesigningrequest-{each}-controller" for each in CONTROLLERS)
        process = subprocess.Popen(
            [
                need("kube-controller-manager"), "--leader-elect=false", "--secure-port=0",
                f"--kubeconfig={found.root}/etc/kubernetes/admin.conf", f"--controllers={names}",
                f"--cluster-signing-cert-file={folder}/pki/ca.crt",
                f"--cluster-signing-key-file={folder}/pki/ca.key",
            ],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        stack.callback(process.wait)
        stack.callback(process.kill)
        yield found


def _master(plane: Plane, keys: Keys) -> None:
    """What a master has in /etc."""
    kubernetes = plane.root / "etc/kubernetes"
    (kubernetes / "pki").mkdir(parents=True)
    (kubernetes / "pki/ca.crt").write_text(keys.ca.certificate)
    (plane.root / "etc/causeway").mkdir()
    kept = {
        name: base64.b64encode(text).decode()
        for name, text in (
            ("certificate-authority-data", keys.ca.certificate.encode()),
            ("client-certificate-data", plane.admin.certificate.read_bytes()),
            ("client-key-data", plane.admin.key.read_bytes()),
        )
    }
    authority = kept.pop("certificate-authority-data")
    cluster = {
        "server": f"https://{plane.server.address}",
        "tls-server-name": NAME,
        "certificate-authority-data": authority,
    }
    (kubernetes / "admin.conf").write_text(json.dumps(_kubeconfig(cluster, kept)))
    settings = {
        "cluster": "research",
        "name": "master-1",
        "endpoint": plane.server.address,
        "masters": {"master-1": "master-1.research.internal"},
        "snapshots": {},
        "join": {"parameter": PARAMETER, "region": "us-west-2", "regions": ["us-east-1", "us-west-2"]},
        "certificates": {"days": 60, "lease": "x", "namespace": "kube-system"},
    }
    (plane.root / "etc/causeway/control-plane.json").write_text(json.dumps(settings))


def _kubeconfig(cluster: dict[str, str], user: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }


@pytest.fixture(scope="module")
def token(plane: Plane) -> str:
    """What a master creates and a machine of a pool fetches."""
    done = plane.program("token")
    assert done.returncode == 0, done.stderr
    kept = plane.client("ssm", "us-west-2").get_parameter(Name=PARAMETER, WithDecryption=True)
    return str(json.loads(kept["Parameter"]["Value"])["token"])


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
        found = ec2.describe_instances(Filters=[{"Name": "subnet-id", "Values": [subnet]}])
        return [
            Instance(each["InstanceId"], each["PrivateDnsName"].partition(".")[0])
            for reservation in found["Reservations"]
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
    made = node(name, version=version)
    made["spec"] = {"providerID": f"aws:///us-west-2a/{instance}"}
    found: dict[str, Any] = plane.admin.create(made)
    return found


@pytest.mark.slow
def test_new_instances_of_pools_get_certificates(plane: Plane, token: str, machines: Machines) -> None:
    wanted = {
        machines.west[0].name: plane.ask(token, KUBELET),
        machines.east[0].name: plane.ask(token, request(machines.east[0].name)),
    }
    assert machines.west[0].name == "ip-10-0-0-4", "the one that the kubelet's request is for"
    with ThreadPoolExecutor() as masters:
        rounds = list(masters.map(lambda _: plane.approve(), range(3)))
    assert [done.returncode for done in rounds] == [0, 0, 0], [done.stderr for done in rounds]
    for name, made in wanted.items():
        assert plane.answer(made) == ("Approved", "CausewayPoolInstance")
        assert plane.certificate(made).subject.rfc4514_string() == f"CN=system:node:{name},O=system:nodes"


@pytest.mark.slow
def test_other_names_are_denied(plane: Plane, token: str, machines: Machines) -> None:
    ended, there, stopped = machines.west[1], machines.west[2], machines.west[3]
    plane.client("autoscaling", "us-west-2").terminate_instance_in_auto_scaling_group(
        InstanceId=ended.id, ShouldDecrementDesiredCapacity=True
    )
    plane.client("ec2", "us-west-2").stop_instances(InstanceIds=[stopped.id])
    joined(plane, there.name, there.id)
    admin = ("digital signature", "client auth", "server auth")
    new = machines.west[4].name
    denied = {
        "a master": (plane.ask(token, request("master-1")), "NotAPoolInstance"),
        "a machine in a rack": (plane.ask(token, request("titan-01")), "NotAPoolInstance"),
        "a node that has joined": (plane.ask(token, request(there.name)), "NodeHasJoined"),
        "no instance": (plane.ask(token, request("ip-10-0-0-250")), "NotAPoolInstance"),
        "no address": (plane.ask(token, request("ip-999-0-0-1")), "NotAPoolInstance"),
        "an instance that has ended": (plane.ask(token, request(ended.name)), "NotAPoolInstance"),
        "an instance that is stopped": (plane.ask(token, request(stopped.name)), "NotAPoolInstance"),
        "an instance of another cluster": (
            plane.ask(token, request(machines.foreign[0].name)),
            "NotAPoolInstance",
        ),
        "an instance of no pool": (plane.ask(token, request(machines.single[0].name)), "NotAPoolInstance"),
        "one more name": (plane.ask(token, request(new, alternative="api.internal")), "NotAKubeletRequest"),
        "one more group": (plane.ask(token, request(new, (*NODES, "system:masters"))), "NotAKubeletRequest"),
        "more usages": (plane.ask(token, request(new), admin), "NotAKubeletRequest"),
    }
    done = plane.approve()
    assert done.returncode == 0, done.stderr
    answers = {what: plane.answer(name) for what, (name, _) in denied.items()}
    assert answers == {what: ("Denied", f"Causeway{reason}") for what, (_, reason) in denied.items()}
    assert not any("certificate" in plane.status(name) for name, _ in denied.values())


@pytest.mark.slow
def test_kubeadm_approves_no_request_of_pools(plane: Plane, token: str, machines: Machines) -> None:
    """As it does those of its own group, for any name."""
    ours = plane.ask(token, request(machines.west[4].name))
    other = plane.kubeadm("token", "create")
    theirs, odd = (plane.ask(other, request("master-1", alternative=each)) for each in (None, "api.internal"))
    assert plane.certificate(theirs)
    assert plane.answer(ours) is None
    groups = [joining.TOKENS, "system:bootstrappers:kubeadm:default-node-token"]
    assert [plane.is_approved_by_kubeadm(each) for each in groups] == [False, True]
    assert plane.approve().returncode == 0
    assert plane.answer(ours) == ("Approved", "CausewayPoolInstance")
    assert plane.answer(odd) is None, "what has another token is not ours to deny"


@pytest.mark.slow
def test_requests_wait_while_a_region_is_away(plane: Plane, token: str, machines: Machines) -> None:
    west = plane.ask(token, request(machines.west[5].name))
    east = plane.ask(token, request(machines.east[1].name))
    master = plane.ask(token, request("master-1"))
    plane.aws.control.order(throttling("DescribeInstances", FOREVER, region="us-west-2"))
    try:
        done = plane.approve()
    finally:
        plane.aws.control.clear_faults()
    assert (done.returncode, "EC2 in us-west-2: " in done.stderr) == (1, True), done.stderr
    assert plane.answer(west) is None
    assert plane.answer(east) == ("Approved", "CausewayPoolInstance")
    assert plane.answer(master) == ("Denied", "CausewayNotAPoolInstance"), "no instance has such a name"
    assert plane.approve().returncode == 0
    assert plane.answer(west) == ("Approved", "CausewayPoolInstance")


@pytest.mark.slow
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


@pytest.mark.slow
def test_an_address_that_another_instance_had(plane: Plane, token: str, machines: Machines) -> None:
    machine = machines.west[7]
    old = joined(plane, machine.name, "i-0123456789abcdef0")
    made = plane.ask(token, request(machine.name))
    done = plane.approve()
    assert (done.returncode, plane.answer(made)) == (0, None), done.stderr
    assert f"Deleted the Node {machine.name}" in done.stdout
    names = [each["metadata"]["name"] for each in plane.admin.call("GET", collection(old))["items"]]
    assert machine.name not in names
    assert plane.approve().returncode == 0
    assert plane.answer(made) == ("Approved", "CausewayPoolInstance")


@pytest.mark.slow
def test_kubeadm_joins_with_the_rights_of_the_group(plane: Plane, token: str, tmp_path: Path) -> None:
    """As far as it goes without a container runtime: it reads what it needs from the cluster."""
    cluster = json.loads((plane.root / "etc/kubernetes/admin.conf").read_text())["clusters"][0]["cluster"]
    discovery, config = tmp_path / "discovery.conf", tmp_path / "join.yaml"
    discovery.write_text(json.dumps(_kubeconfig(cluster, {"token": token})))
    document = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {"file": {"kubeConfigPath": str(discovery)}},
        "nodeRegistration": {"name": "ip-10-0-0-5", "criSocket": f"unix://{tmp_path}/none.sock"},
    }
    config.write_text(json.dumps(document))
    command = [need("kubeadm"), "join", "phase", "preflight", "--config", str(config)]
    done = subprocess.run(
        [*command, "--ignore-preflight-errors=all"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert 'Reading configuration from the "kubeadm-config" ConfigMap' in done.stdout


@pytest.mark.slow
def test_the_service_goes_on_answering(plane: Plane, token: str, machines: Machines) -> None:
    command = [sys.executable, "-B", "-m", "kubernetes_node.approval", "--root", str(plane.root)]
    process = subprocess.Popen(command, env=plane.environment(), stdin=subprocess.DEVNULL)
    try:
        for _ in range(2):
            made = plane.ask(token, request("master-1"))
            assert until(partial(plane.answer, made)) == ("Denied", "CausewayNotAPoolInstance")
    finally:
        process.terminate()
        process.wait()


def test_masters_and_manifests_name_one_group() -> None:
    script = "from kubernetes_node.token import GROUP; print(GROUP)"
    env = {**os.environ, "PYTHONPATH": str(PROGRAMS)}
    done = subprocess.run(
        [sys.executable, "-B", "-c", script], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.strip() == joining.TOKENS
