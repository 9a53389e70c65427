"""What a person reads after a slip of the pen: where, the cause and nothing else, what mends it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from golden_folders import assert_text

from infra.errors import Problem, SpecError
from infra.load import load

MESSAGES = Path(__file__).parents[1] / "messages" / "spec.txt"
SPEC = """\
version: 1
name: first
domain: first.internal
sites:
  us-west-2: {kind: aws, primary: true}
  lab:
    kind: physical
    cidr: 10.200.0.0/22
    gateway: {addresses: [198.51.100.10]}
    nodes:
      gw: {address: 10.200.0.2, cpus: 8, memory: 16 GiB, roles: [site-gateway]}
images:
  cpu: {ubuntu: 24.04}
pools:
  cpu:
    image: cpu
    instance_types: [m6i.xlarge]
    regions: {us-west-2: {max: 4}}
kubernetes: {snapshots: 1h}
"""

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP3uQw1AvVfe6sGGzZeQAz0PBvkJqIBufObnF6t8fVAp ada"
USER = (
    f"access: {{groups: {{g: {{}}}}, users: {{ada: {{groups: [g], expires: 20270331, ssh_keys: [{KEY}]}}}}}}"
)
AWS = "{kind: aws, primary: true}"


CHANGES = [
    # The form of the file
    ("  us-west-2:", "\tus-west-2:"),
    ("name: first", "name:first"),
    ("{max: 4}}", "{max: 4}"),
    ("[m6i.xlarge]", "[m6i.xlarge"),
    ("name: first", "name: @first"),
    ("{max: 4}", "{max: *four}"),
    ("kubernetes:", "---\nkubernetes:"),
    ("name: first", "name: f\x07irst"),
    # What stands in the wrong place
    ("kind: physical", "kind: physical\n    nat: one"),
    ("instance_types:", "instance-types:"),
    ("[m6i.xlarge]", "[{typ: m6i.xlarge}]"),
    ("pools:", "Pools:"),
    ("kubernetes:", "autoscaler: {notices: {slack: ops}}\nkubernetes:"),
    ("198.51.100.10", '"2001:db8::1"'),
    ("cidr: 10.200.0.0/22", "cidr: [10.200.0.0/22]"),
    # Values
    (AWS, "{kind: AWS, primary: true}"),
    ("version: 1", "version: 2"),
    ("primary: true", "primary: yes"),
    ("max: 4", "max: 99999999999999999999"),
    ("16 GiB", "16GB"),
    ("16 GiB", "0 GiB"),
    ("1h", "1s"),
    ("10.200.0.0/22", "10.200.0.1/22"),
    ("10.200.0.0/22", "10.200.0.0/255.255.252.0"),
    ("10.200.0.0/22", "10.200.0.0"),
    # Nothing where something was meant
    ("domain: first.internal\n", ""),
    (AWS, ""),
    (AWS, "{kind: , primary: true}"),
    ("pools:", "pools:\n  gpu:"),
    ("[m6i.xlarge]", "[m6i.xlarge, ~]"),
    ("kubernetes:", "tags: {team: }\nkubernetes:"),
    ("pools:", "name:\npools:"),
    ("kubernetes:", "access: {groups: {staff: }}\nkubernetes:"),
    ("kubernetes:", "waivers: [{code: SITE011, reason: it is an island, as it was}]\nkubernetes:"),
    # One value where several belong
    ("{max: 4}", "4"),
    ("kubernetes:", "network: {alarms: true}\nkubernetes:"),
    ("kubernetes:", "access: {vpn: {kinds: wireguard}}\nkubernetes:"),
    ("kubernetes:", "access: {vpn: {wireguard: true}}\nkubernetes:"),
    # What lacks a bad value is not also found to lack it
    ("kubernetes:", "access: {groups: {g: {}}, users: {ada: {groups: [g], ssh_keys: a b}}}\nkubernetes:"),
    ("kubernetes:", f"{USER}\nkubernetes:"),
    ("kubernetes:", "storage: {efs: {home: {path: /srv/../home}}}\nkubernetes:"),
    # Forms of YAML that are not taken
    ("kubernetes:", "tags: {a: [}\nkubernetes:"),
    ("kubernetes:", "tags: &a {b: *a}\nkubernetes:"),
    ("kubernetes:", "tags: {<<: {a: b}}\nkubernetes:"),
    ("kubernetes:", "tags: !python/name:os.system {}\nkubernetes:"),
    ("kubernetes:", "extends: nowhere.yaml\nkubernetes:"),
    ("kubernetes:", "extends: x.yaml\nkubernetes:"),
    ("domain:", "owner: M\xfcller\ndomain:"),
]  # fmt: skip
"""One cause each: a piece of the spec, and what stands in its place."""


def problems(file: Path, text: bytes) -> Sequence[Problem]:
    file.write_bytes(text)
    with pytest.raises(SpecError) as caught:
        load(file)
    return caught.value.problems


def test_the_spec_itself_is_sound(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    for text in (SPEC, SPEC.replace("\n", "\r\n"), SPEC.replace("\n", "  \n"), "\ufeff" + SPEC):
        file.write_bytes(text.encode())
        assert load(file).problems == ()


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("{max: 4}", "4", "max"),
        ("kubernetes:", "network: {alarms: true}\nkubernetes:", "emails"),
        ("kubernetes:", "access: {vpn: {kinds: wireguard}}\nkubernetes:", "[wireguard]"),
        ("kubernetes:", "access: {vpn: {wireguard: true}}\nkubernetes:", "{}"),
    ],
)
def test_one_value_where_several_belong_is_told_what_to_write(
    old: str, new: str, hint: str, tmp_path: Path
) -> None:
    [problem] = problems(tmp_path / "x.yaml", SPEC.replace(old, new, 1).encode())
    assert problem.code == "SPEC003"
    assert hint in problem.hint


def test_one_cause_is_one_finding(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """What each says, with its line and its code."""
    file = tmp_path / "x.yaml"
    (tmp_path / "base.yaml").write_text(SPEC)
    assert all(old in SPEC for old, _ in CHANGES)
    texts = [SPEC.replace(old, new, 1).encode("latin-1") for old, new in CHANGES]
    texts += [b"# nothing yet\n", b"- a\n", b"extends: base.yaml\npools: {cpu: ~, gpu: ~}\n"]
    lines = []
    for text in texts:
        [problem] = problems(file, text)
        lines.append(str(problem).replace(f"{tmp_path}/", "") + "\n")
    assert_text(MESSAGES, "".join(lines), rewrite=request.config.getoption("--update-golden"))
