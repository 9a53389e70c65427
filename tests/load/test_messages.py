"""What a person reads after a slip of the pen: where, the cause and nothing else, what mends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import SpecError
from infra.load import load

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

NO_SIZE = "not a size such as 500 GiB (units: MiB, GiB, TiB)"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP3uQw1AvVfe6sGGzZeQAz0PBvkJqIBufObnF6t8fVAp ada"
USER = (
    f"access: {{groups: {{g: {{}}}}, users: {{ada: {{groups: [g], expires: 20270331, ssh_keys: [{KEY}]}}}}}}"
)
AWS = "{kind: aws, primary: true}"


def said(tmp_path: Path, text: str | bytes) -> list[str]:
    """Each problem without the file's name and the code."""
    file = tmp_path / "x.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SpecError) as caught:
        load(file)
    return [str(problem).split("/x.yaml:")[-1].rpartition(" [")[0] for problem in caught.value.problems]


def test_the_spec_itself_is_sound(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    for text in (SPEC, SPEC.replace("\n", "\r\n"), SPEC.replace("\n", "  \n"), "\ufeff" + SPEC):
        file.write_bytes(text.encode())
        assert load(file).problems == ()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # The form of the file
        ("  us-west-2:", "\tus-west-2:", "5: a tab stands here; indent with spaces"),
        (
            "name: first",
            "name:first",
            "2: a key without ': ' after it; put a colon and a space after the key",
        ),
        ("{max: 4}}", "{max: 4}", "18: this '{' is not closed; add the '}'"),
        ("[m6i.xlarge]", "[m6i.xlarge", "17: this '[' is not closed; add the ']'"),
        ("name: first", "name: @first", "2: a value can't start with @; put it in quotes"),
        (
            "{max: 4}",
            "{max: *four}",
            "18: no anchor of this name stands above; put a value that starts with * or & in quotes",
        ),
        ("kubernetes:", "---\nkubernetes:", "19: a second document starts here; take out the '---'"),
        ("name: first", "name: f\x07irst", "2: the character #x0007 can't stand in YAML; take it out"),
        # What stands in the wrong place
        (
            "kind: physical",
            "kind: physical\n    nat: one",
            "8: sites.lab.nat: unknown key; it belongs to 'kind: aws'",
        ),
        (
            "instance_types:",
            "instance-types:",
            "17: pools.cpu.instance-types: unknown key; did you mean instance_types?",
        ),
        (
            "[m6i.xlarge]",
            "[{typ: m6i.xlarge}]",
            "17: pools.cpu.instance_types[0].typ: unknown key; did you mean type?",
        ),
        ("pools:", "Pools:", "14: Pools: unknown key; did you mean pools?"),
        (
            "198.51.100.10",
            '"2001:db8::1"',
            "9: sites.lab.gateway.addresses[0]: '2001:db8::1' is not an IPv4 address such as 10.8.0.11",
        ),
        (
            "cidr: 10.200.0.0/22",
            "cidr: [10.200.0.0/22]",
            "8: sites.lab.cidr: a list stands where one value is expected",
        ),
        # Values
        (
            AWS,
            "{kind: AWS, primary: true}",
            "5: sites.us-west-2.kind: 'AWS' is not known here; did you mean aws?",
        ),
        ("version: 1", "version: 2", "1: version: '2' is not known here; it can only be 1"),
        (
            "primary: true",
            "primary: yes",
            "5: sites.us-west-2.primary: 'yes' is neither true nor false; did you mean true?",
        ),
        (
            "max: 4",
            "max: 99999999999999999999",
            "18: pools.cpu.regions.us-west-2.max: 99999999999999999999 is too large for anything here",
        ),
        ("16 GiB", "16GB", f"11: sites.lab.nodes.gw.memory: '16GB' is {NO_SIZE}; did you mean 16 GiB?"),
        ("16 GiB", "0 GiB", "11: sites.lab.nodes.gw.memory: 0 GiB is no room at all"),
        ("1h", "1s", "19: kubernetes.snapshots: 1s is too small; the least is 5m"),
        (
            "10.200.0.0/22",
            "10.200.0.1/22",
            "8: sites.lab.cidr: 10.200.0.1/22 has host bits set; did you mean 10.200.0.0/22?",
        ),
        (
            "10.200.0.0/22",
            "10.200.0.0/255.255.252.0",
            "8: sites.lab.cidr: '10.200.0.0/255.255.252.0' is no block; did you mean 10.200.0.0/22?",
        ),
        (
            "10.200.0.0/22",
            "10.200.0.0",
            "8: sites.lab.cidr: '10.200.0.0' is an address, not a block; write 10.200.0.0/32 for this one",
        ),
        # Nothing where something was meant
        (AWS, "", "5: sites.us-west-2: says nothing; add 'kind: aws' or 'kind: physical'"),
        (
            AWS,
            "{kind: , primary: true}",
            "5: sites.us-west-2.kind: says nothing of its kind; write aws or physical",
        ),
        ("pools:", "pools:\n  gpu:", "15: pools.gpu: says nothing; it needs regions, instance_types, image"),
        ("[m6i.xlarge]", "[m6i.xlarge, ~]", "17: pools.cpu.instance_types[1]: says nothing; it needs type"),
        (
            "kubernetes:",
            "tags: {team: }\nkubernetes:",
            "19: tags.team: says nothing; write what it is, or take it out",
        ),
        ("pools:", "name:\npools:", "14: name: written twice; first in line 2"),
        (
            "kubernetes:",
            "access: {groups: {staff: }}\nkubernetes:",
            "19: access.groups.staff: says nothing; write {} to have it with its defaults",
        ),
        (
            "kubernetes:",
            "waivers: [{code: SITE011, reason: it is an island, as it was}]\nkubernetes:",
            '19: waivers[0]["as it was"]: unknown key; put a text with a comma in quotes',
        ),
        # What lacks a bad value is not also found to lack it
        (
            "kubernetes:",
            "access: {groups: {g: {}}, users: {ada: {groups: [g], ssh_keys: ssh-ed25519 AAAA}}}\nkubernetes:",
            "19: access.users.ada.ssh_keys: 'ssh-ed25519 AAAA' stands where a list is expected",
        ),
        (
            "kubernetes:",
            f"{USER}\nkubernetes:",
            "19: access.users.ada.expires: '20270331' is not a date such as 2027-03-31",
        ),
        (
            "kubernetes:",
            "storage: {efs: {home: {path: /srv/../home}}}\nkubernetes:",
            "19: storage.efs.home.path: '/srv/../home' is not an absolute path such as /data",
        ),
    ],
)
def test_one_cause_is_one_finding(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in SPEC
    assert said(tmp_path, SPEC.replace(old, new, 1)) == [expected]


def test_a_file_with_nothing_in_it(tmp_path: Path) -> None:
    assert said(tmp_path, "# nothing yet\n") == [
        "1: an empty file; start from environments/minimal.yaml, which is ten lines"
    ]


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    text = SPEC.replace("domain:", "owner: Müller\ndomain:").encode("latin-1")
    assert said(tmp_path, text) == ["3: not UTF-8 text; save the file as UTF-8"]


def test_null_takes_away_only_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(SPEC)
    assert said(tmp_path, "extends: base.yaml\npools: {cpu: ~, gpu: ~}\n") == [
        "2: pools.gpu: says nothing; it needs regions, instance_types, image"
    ]
