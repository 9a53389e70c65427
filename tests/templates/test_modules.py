"""The Terraform modules, planned by real Terraform: what they make of values, and which they refuse.

moto answers what a plan reads: the account, and a hosted zone that exists already.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from golden_folders import assert_text
from permissions.policy import Request, allowing, read
from templates.module_calls import (
    CALLS,
    EVERYWHERE,
    FACTS,
    IDENTITY,
    INSIDE,
    INVALID,
    KEY,
    LONG,
    TAGS,
    UNFIT,
    Call,
)

from infra.catalogue import limits
from infra.catalogue.limits import POLICY_CHARACTERS, policy_characters
from infra.drive.engine import find_engine
from infra.drive.terraform import SILENT

HERE = Path(__file__).parent
MODULES = HERE.parents[1] / "templates" / "terraform" / "modules"
MESSAGES = HERE.parent / "messages" / "terraform.txt"
NAMES = sorted({Path(call["source"]).name for call in CALLS.values()})
"""All modules but ``region`` and ``web_identity``, which ``terraform validate`` reads in golden roots."""

Values = dict[str, Any]


class Root:
    """A root module in a folder of its own, each call in a file of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._environment = environment
        (folder / "modules").symlink_to(MODULES)
        providers = [{"region": "us-west-2"}, {"alias": "west", "region": "us-west-2"}]
        providers.append({"alias": "east", "region": "us-east-1"})
        text = {"provider": {"aws": providers}, "variable": {"existing_zone": {"type": "string"}}}
        (folder / "main.tf.json").write_text(json.dumps(text))

    def call(self, calls: dict[str, Call]) -> None:
        """Calls these modules and no others."""
        for file in self.folder.glob("call-*.tf.json"):
            file.unlink()
        for name, call in calls.items():
            text = {
                "module": {name: call},
                "output": {name: {"value": f"${{module.{name}}}", "sensitive": True}},
            }
            (self.folder / f"call-{name}.tf.json").write_text(json.dumps(text))

    def run(self, *arguments: str, code: int = 0) -> str:
        """What Terraform writes."""
        done = subprocess.run(
            [*find_engine().argv, *arguments],
            cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout


@dataclass(frozen=True)
class Planned:
    """A plan of all calls."""

    resources: dict[str, dict[str, Values]]
    """Module → address in it → values that are known; data sources are among them."""
    outputs: dict[str, Any]
    refused: list[str]
    """Why Terraform refuses the calls that it refuses."""
    warnings: list[str]

    def all(self, module: str, kind: str) -> dict[str, Values]:
        """Name and index → values, of each resource of a type."""
        found = self.resources[module].items()
        return {
            name.removeprefix(f"{kind}."): values for name, values in found if name.startswith(f"{kind}.")
        }

    def one(self, module: str, kind: str) -> Values:
        (values,) = self.all(module, kind).values()
        return values

    def each(self) -> Iterator[tuple[str, str, Values]]:
        """Module, address and values of every resource that is managed."""
        for module, resources in self.resources.items():
            for address, values in resources.items():
                if not address.startswith("data."):
                    yield module, address, values

    def policies(self, module: str, role: str) -> dict[str, Values]:
        """A role's statements by their id."""
        return {
            statement["Sid"]: statement
            for policy in self.all(module, "aws_iam_role_policy").values()
            if policy["role"] == f"{IDENTITY['name']}-{role}"
            for statement in listed(json.loads(policy["policy"])["Statement"])
        }


def listed(one_or_more: Any) -> list[Any]:
    return one_or_more if isinstance(one_or_more, list) else [one_or_more]


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """Environment variables that lead to moto, where one hosted zone exists."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
        endpoint = f"http://{host}:{port}"
        route53 = boto3.client("route53", region_name="us-west-2", endpoint_url=endpoint, **keys)
        zone = route53.create_hosted_zone(Name="adopted.example", CallerReference="a")["HostedZone"]["Id"]
        own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TF_VAR_"))}
        yield own | {
            **SILENT,
            **{name.upper(): value for name, value in keys.items()},
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "CHECKPOINT_DISABLE": "1",
            "TF_IN_AUTOMATION": "1",
            "TF_VAR_existing_zone": zone.removeprefix("/hostedzone/"),
        }
    finally:
        server.stop()


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Planned:
    root = Root(tmp_path_factory.mktemp("modules"), environment)
    root.call(CALLS | INVALID | UNFIT)
    root.run("init", "-input=false", "-no-color")
    root.call(INVALID)
    invalid = json.loads(root.run("validate", "-json", code=1))["diagnostics"]
    root.call(UNFIT)
    lines = [json.loads(line) for line in root.run("plan", "-json", code=1).splitlines()]
    unfit = [line["diagnostic"] for line in lines if line["type"] == "diagnostic"]
    root.call(CALLS)
    lines = [json.loads(line) for line in root.run("plan", "-json", "-out=plan").splitlines()]
    plan = json.loads(root.run("show", "-json", "plan"))
    return Planned(
        {
            module["address"].removeprefix("module."): {
                one["address"].removeprefix(f"{module['address']}."): one.get("values", {})
                for one in module["resources"]
            }
            for module in plan["planned_values"]["root_module"]["child_modules"]
        },
        {name: output["after"] for name, output in plan["output_changes"].items() if "after" in output},
        [*sorted(map(refusal, invalid)), *sorted(map(refusal, unfit))],
        [line["diagnostic"]["summary"] for line in lines if line["type"] == "diagnostic"],
    )


def refusal(diagnostic: dict[str, Any]) -> str:
    """The call that has the wrong value, or the module whose precondition fails; why."""
    file = Path(diagnostic["range"]["filename"])
    call = re.fullmatch(r"call-(.*)\.tf\.json", file.name)
    why = " ".join(diagnostic["detail"].partition("\n\nThis was checked")[0].split())
    return f"{call[1] if call else file.parent.name}: {why}"


def test_what_is_planned_is_in_the_table(planned: Planned) -> None:
    table = yaml.safe_load((HERE / "planned.yaml").read_text(encoding="utf-8"))
    wrong = []
    for module, rows in table.items():
        for address, wanted in rows.items():
            if isinstance(wanted, list):
                names = sorted(planned.all(module, address))
                wrong += [f"{module} {address}: {names}"] if names != sorted(wanted) else []
                continue
            values = planned.resources[module][address]
            unfit = [name for name, value in wanted.items() if not holds(values.get(name), value)]
            wrong += [f"{module} {address}.{name}: {json.dumps(values.get(name))}" for name in unfit]
    assert not wrong, "\n".join(wrong)


def holds(value: Any, wanted: Any) -> bool:
    """Whether a planned value has what is wanted of it; see planned.yaml."""
    if wanted is None:
        return value in (None, "", [])
    if isinstance(wanted, dict):
        document = json.loads(value) if isinstance(value, str) else value
        return isinstance(document, dict) and all(holds(document.get(key), wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(holds, value, wanted))
    return type(value) is type(wanted) and bool(value == wanted)


def test_what_is_wrong_is_refused_before_anything_is_made(
    planned: Planned, environment: dict[str, str], request: pytest.FixtureRequest
) -> None:
    text = "\n".join(planned.refused).replace(environment["TF_VAR_existing_zone"], "Z1") + "\n"
    assert_text(MESSAGES, text, rewrite=request.config.getoption("--update-golden"))


def test_modules_are_formatted_and_plan_without_a_warning(planned: Planned) -> None:
    assert planned.warnings == []
    folders = [MODULES / name for name in NAMES]
    done = subprocess.run(
        [*find_engine().argv, "fmt", "-check", "-diff", *folders], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


# -- Rules over all of them -------------------------------------------------------------------------------


def blocks(kind: str) -> dict[str, str]:
    """File and labels → text, of each block of a kind in all modules."""
    return {
        f"{path.relative_to(MODULES)} {labels}": body
        for path in sorted(MODULES.glob("*/*.tf"))
        for labels, body in re.findall(
            rf'^{kind} ("[^{{]*") \{{\n(.*?)^\}}', path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        )
    }


def test_stateful_things_are_guarded() -> None:
    guarded = {
        name.replace('"', "") for name, body in blocks("resource").items() if "prevent_destroy = true" in body
    }
    assert guarded == {
        "access/main.tf aws_eip this",
        "control_plane/load_balancer.tf aws_lb this",
        "control_plane/masters.tf aws_instance master",
        "dns/private.tf aws_route53_zone private",
        "dns/public.tf aws_route53_zone public",
        "network/nat.tf aws_eip nat",
        "network/vpc.tf aws_vpc this",
        "storage/buckets.tf aws_s3_bucket this",
        "storage/file_systems.tf aws_efs_file_system this",
        "tracking_database/main.tf aws_db_instance this",
        "vpn_gateway/main.tf aws_vpn_gateway this",
        "web_identity/cloudfront.tf aws_cloudfront_distribution issuer",
        "web_identity/issuer.tf aws_iam_openid_connect_provider this",
        "web_identity/issuer.tf aws_s3_bucket issuer",
    }


def test_variables_and_outputs_say_what_they_are() -> None:
    variables = blocks("variable")
    for name, body in {**variables, **blocks("output")}.items():
        assert re.search(r"^  description +=", body, re.MULTILINE), name
        assert name not in variables or re.search(r"^  type +=", body, re.MULTILINE), name


def test_everything_is_tagged(planned: Planned) -> None:
    tagged = [(address, values["tags"]) for _, address, values in planned.each() if "tags" in values]
    assert len(tagged) > 100
    for address, tags in tagged:
        assert tags is not None, address
        assert tags.items() >= TAGS.items(), address
    for module in ("control_plane", "access"):
        for machine in planned.all(module, "aws_instance").values():
            assert machine["volume_tags"] == machine["tags"]


def test_metadata_needs_a_token_and_disks_are_encrypted_everywhere(planned: Planned) -> None:
    machines = ("aws_launch_template", "aws_launch_configuration", "aws_instance")
    launched = [values for _, address, values in planned.each() if address.split(".")[0] in machines]
    assert len(launched) > 15
    for values in launched:
        (options,) = values["metadata_options"]
        assert (options["http_tokens"], options["http_put_response_hop_limit"]) == ("required", 1)
        disks = [mapping["ebs"][0] for mapping in values.get("block_device_mappings") or []]
        disks += (values.get("root_block_device") or []) + (values.get("ebs_block_device") or [])
        assert disks
        for disk in disks:
            # Launch templates keep their booleans as text.
            assert {str(disk[key]).lower() for key in ("encrypted", "delete_on_termination")} == {"true"}


def test_user_data_arrives_as_it_was_written(planned: Planned) -> None:
    """A machine of a pool, which is told facts, and one with a name."""
    head, _, config = (
        base64.b64decode(planned.one("plain", "aws_launch_template")["user_data"]).decode().partition("\n")
    )
    (file,) = yaml.safe_load(config)["write_files"]
    facts = {name: value for name, value in FACTS.items() if name != "motto"}
    assert (head, file["path"]) == ("#cloud-config", "/etc/causeway/node.json")
    assert json.loads(file["content"]) == facts | {"motto": "é ${HOME} %{if}"}


# -- Networks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "world"),
    [("network", {("udp", 1194, "openvpn-udp"), ("tcp", 443, "openvpn-tcp")}), ("closed", set())],
)
def test_nothing_but_the_vpn_is_open_to_the_world_and_rules_are_as_many_as_checks_count(
    planned: Planned, module: str, world: set[tuple[str, int, str]]
) -> None:
    rules = planned.all(module, "aws_vpc_security_group_ingress_rule")
    assert world == {
        (rule["ip_protocol"], rule["from_port"], rule["tags"]["Name"])
        for rule in rules.values()
        if rule["cidr_ipv4"] == "0.0.0.0/0"
    }
    counted = limits.inbound_rules(len(INSIDE), 1, len(world))
    assert counted == Counter(
        "vpn" if name.startswith("world") else next(one for one in counted if f'["{one}-' in name)
        for name in rules
        if not name.startswith("endpoints")
    )


def test_who_reaches_what_inside(planned: Planned) -> None:
    """All blocks of the inside: the API; Prometheus on a master: what machines and other masters tell of."""
    rules = planned.all("network", "aws_vpc_security_group_ingress_rule")
    api = [rule for name, rule in rules.items() if "control-plane-api" in name]
    assert sorted((rule["cidr_ipv4"], rule["from_port"], rule["to_port"]) for rule in api) == [
        (block, 6443, 6443) for block in INSIDE
    ]
    asked = {
        "ssh": (9100, 10249, 10250, 9400),  # the node exporter, kube-proxy, the kubelet, the exporter of GPUs
        "control-plane": (2381, 10257, 10259),  # etcd, the controller manager, the scheduler
    }
    for group, ports in asked.items():
        own = [rule for name, rule in rules.items() if f'["{group}-' in name and rule["ip_protocol"] == "tcp"]
        for port in ports:
            assert any(rule["from_port"] <= port <= rule["to_port"] for rule in own), (group, port)


def test_no_machine_gets_a_public_address_by_itself(planned: Planned) -> None:
    subnets = planned.all("network", "aws_subnet").values()
    assert [subnet["map_public_ip_on_launch"] for subnet in subnets] == [False] * 6


def test_tunnels_accept_nothing_old(planned: Planned) -> None:
    for connection in planned.all("vpn", "aws_vpn_connection").values():
        for tunnel in ("tunnel1", "tunnel2"):
            assert connection[f"{tunnel}_ike_versions"] == ["ikev2"]
            for phase in (f"{tunnel}_phase1", f"{tunnel}_phase2"):
                assert connection[f"{phase}_encryption_algorithms"] == ["AES256-GCM-16"]
                assert set(connection[f"{phase}_dh_group_numbers"]) == {19, 20, 21}
                assert "SHA1" not in connection[f"{phase}_integrity_algorithms"]


# -- Storage and names ------------------------------------------------------------------------------------


def test_long_names_are_cut_where_aws_wants_them_short(planned: Planned) -> None:
    scratch = planned.all("storage", "aws_efs_file_system")['this["scratch"]']
    assert (len(scratch["creation_token"]), scratch["tags"]["Name"]) == (64, "scratch-" * 20)


def test_a_file_system_is_for_the_roles_that_are_named_and_its_root_for_fewer(planned: Planned) -> None:
    documents = planned.all("storage", "data.aws_iam_policy_document")
    storage = CALLS["storage"]
    for name, own in (("home", storage["file_systems"]["home"]["root_roles"]), ("scratch", [])):
        statements = {one["sid"]: one for one in documents[f'file_system["{name}"]']["statement"]}
        assert set(statements) == {"MountByMachines", "RootOfSome", "OnlyOverTls"}
        rooted = [
            sid for sid, one in statements.items() if "elasticfilesystem:ClientRootAccess" in one["actions"]
        ]
        assert rooted == ["RootOfSome"]
        for sid, roles in (
            ("MountByMachines", storage["client_roles"]),
            ("RootOfSome", storage["root_roles"] + own),
        ):
            (principal,) = statements[sid]["principals"]
            assert sorted(principal["identifiers"]) == sorted(roles)


def test_buckets_are_closed(planned: Planned) -> None:
    for closed in planned.all("storage", "aws_s3_bucket_public_access_block").values():
        assert all(closed[name] for name in closed if name.startswith(("block_", "ignore_", "restrict_")))


def test_long_texts_of_records_are_split(planned: Planned) -> None:
    first, second = (part.replace('"', '\\"') for part in (LONG[:255], LONG[255:]))
    note = planned.all("dns", "aws_route53_record")['private["note"]']
    assert set(note["records"]) == {"short", f'{first}""{second}'}


def test_outputs_say_what_there_is(planned: Planned, environment: dict[str, str]) -> None:
    adopted, none = planned.outputs["adopted"], planned.outputs["no_public"]
    assert adopted["public_zone_id"] == environment["TF_VAR_existing_zone"]
    assert len(adopted["public_name_servers"]) == 4
    assert (none["public_zone_id"], none["public_name_servers"]) == (None, [])
    assert planned.outputs["old"]["launch_template_id"] is None


# -- Rights -----------------------------------------------------------------------------------------------

ROLES = {
    "node": {
        "ReadOwnSecrets", "FindOwnFileSystems", "ListBuckets", "ReadObjects", "ListUploads", "WriteObjects",
        "LookUp", "ReportDrained", "SignIn", "PullImages",
    },
    "control-plane": {
        "ReadOwnSecrets", "LookUp", "ScaleOwnGroups", "WriteOwnSecretsAndTokens", "ListSnapshots",
        "KeepSnapshots", "WriteAuditLog", "SignIn", "PullImages",
    },
    "ssh-node": {
        "ReadOwnSecrets", "FindOwnFileSystems", "ListBuckets", "ReadObjects", "ListUploads", "WriteObjects",
    },
    "access-gateway": {"ReadOwnSecrets"},
}  # fmt: skip
OPTIONAL = {
    "ListBuckets", "ReadObjects", "ListUploads", "WriteObjects", "ListSnapshots", "KeepSnapshots",
    "WriteAuditLog", "SignIn", "PullImages",
}  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_these_rights_and_no_others(planned: Planned, role: str) -> None:
    statements = planned.policies("identity", role)
    assert set(statements) == ROLES[role]
    assert set(planned.policies("no_buckets", role)) == ROLES[role] - OPTIONAL
    secrets = f"arn:aws:ssm:*:123456789012:parameter/causeway/lab/{role}/*"
    assert statements["ReadOwnSecrets"]["Resource"] == secrets
    for name, statement in statements.items():
        actions, resources = listed(statement["Action"]), listed(statement["Resource"])
        assert statement["Effect"] == "Allow"
        assert not [action for action in actions if "*" in action], name
        if "*" in resources:  # What knows no resource, and nothing else.
            assert all(":Describe" in each or each == "ecr:GetAuthorizationToken" for each in actions), name
        else:
            assert all(resource.startswith("arn:aws:") for resource in resources), name
        # S3's names are global, and a token for a registry is nothing by itself.
        if not all(action.startswith(("s3:", "ecr:GetAuthorizationToken")) for action in actions):
            own = statement["Condition"]["StringEquals"]["aws:RequestedRegion"]
            assert sorted(own) == sorted(IDENTITY["regions"]), name
        if name in {"FindOwnFileSystems", "ReportDrained", "ScaleOwnGroups"}:
            assert statement["Condition"]["StringEquals"]["aws:ResourceTag/cluster"] == "lab", name
            assert not [action for action in actions if ":Client" in action], name


def length(planned: Planned, module: str, role: str) -> int:
    """As IAM counts: the characters of all inline policies of a role, without white space."""
    policies = planned.all(module, "aws_iam_role_policy").values()
    # No spec names repositories of images.
    own = [each for each in policies if each["role"] == f"lab-{role}" and each["name"] != "pull-images"]
    return sum(len("".join(policy["policy"].split())) for policy in own)


@pytest.mark.parametrize("role", ROLES)
def test_a_roles_policies_fit_into_iams_limit_in_thirty_regions(planned: Planned, role: str) -> None:
    assert len(EVERYWHERE) == 30
    assert 0 < length(planned, "everywhere", role) <= POLICY_CHARACTERS


@pytest.mark.parametrize("module", ["identity", "everywhere", "no_buckets"])
def test_the_length_of_nodes_policies_is_as_checks_reckon_it(planned: Planned, module: str) -> None:
    call = CALLS[module]
    buckets = [(each["bucket"], each["read_only"]) for each in call["buckets"].values()]
    reckoned = policy_characters(call["regions"], buckets, call.get("kms_keys", []))
    assert abs(length(planned, module, "node") - reckoned) <= 20


@pytest.mark.parametrize("role", ["node", "ssh-node"])
def test_a_read_only_bucket_is_read_only(planned: Planned, role: str) -> None:
    statements = planned.policies("identity", role)
    assert {*statements["ReadObjects"]["Resource"]} == {
        f"arn:aws:s3:::{name}/*" for name in ("lab-data", "lab-models")
    }
    assert listed(statements["WriteObjects"]["Resource"]) == ["arn:aws:s3:::lab-models/*"]
    of_data = [each for each in statements.values() if "lab-data" in json.dumps(each["Resource"])]
    allowed = {action for each in of_data for action in listed(each["Action"])}
    assert not allowed & {"s3:PutObject", "s3:DeleteObject"}
    assert "s3:DeleteObjectVersion" not in json.dumps(statements)


@pytest.mark.parametrize("role", ROLES)
def test_keys_are_used_through_s3_alone(planned: Planned, role: str) -> None:
    assert "UseKeysOfBuckets" not in planned.policies("identity", role)
    statement = planned.policies("everywhere", role).get("UseKeysOfBuckets")
    assert (statement is None) == (role == "access-gateway")
    if statement is not None:
        assert statement["Resource"] == KEY
        services = statement["Condition"]["StringEquals"]["kms:ViaService"]
        assert set(services) == {f"s3.{region}.amazonaws.com" for region in EVERYWHERE}


def test_masters_keep_snapshots_and_write_the_audit_log_and_delete_neither(planned: Planned) -> None:
    """As IAM decides, whatever else masters may do."""
    statements = list(planned.policies("identity", "control-plane").values())
    allowed = read("control-plane", json.dumps({"Statement": statements}))

    def may(action: str, resource: str) -> bool:
        return bool(allowing(allowed, Request(f"s3:{action}", f"arn:aws:s3:::{resource}")))

    copy, log = "lab-snapshots/snapshots/lab/x", "lab-audit/audit/lab/master-1/2026/11/25/042300-0-0.log.gz"
    assert may("PutObject", copy)
    assert may("PutObject", log)
    for elsewhere in ("lab-snapshots/other/x", "lab-audit/other/x", "lab-other/audit/x"):
        assert not may("PutObject", elsewhere)
    for action in ("DeleteObject", "DeleteObjectVersion", "PutObjectRetention"):
        assert not may(action, copy), action
        assert not may(action, log), action
    for action in ("GetObject", "GetObjectVersion"):
        assert not may(action, log), action
    for action in ("ListBucket", "PutLifecycleConfiguration", "PutBucketVersioning", "DeleteBucketPolicy"):
        assert not may(action, "lab-audit"), action


def test_each_policy_of_a_role_is_waited_for_and_among_those_that_it_may_have() -> None:
    """A machine starts when its role has all of its rights; an apply takes away what is not listed."""
    files = sorted((MODULES / "identity").glob("*.tf"))
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    policies = set(re.findall(r'^resource "aws_iam_role_policy" "(\w+)"', text, re.MULTILINE))
    assert policies == set(re.findall(r"^    aws_iam_role_policy\.(\w+),$", text, re.MULTILINE))
    (exclusive,) = re.findall(r"^  policies = concat\((.*?)^  \)", text, re.MULTILINE | re.DOTALL)
    assert policies == set(re.findall(r"aws_iam_role_policy\.(\w+)", exclusive))
