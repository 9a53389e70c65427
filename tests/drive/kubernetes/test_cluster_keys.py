"""The cluster's keys: made once, whoever comes first; project by openssl and by kubeadm itself."""

from __future__ import annotations

import json
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from drive.machines.hosts import running
from kube_tools import need
from stores import local_store

from infra.drive.kubernetes import certificates, joining, secrets
from infra.drive.kubernetes.nodes import require_quorum, selects
from infra.drive.kubernetes.secrets import Keys
from infra.drive.kubernetes.status import Member
from infra.drive.kubernetes.upgrade import settled
from infra.drive.machines.converge import write_secrets
from infra.drive.secrets import SecretsError
from infra.drive.secrets.local import LocalStore
from infra.drive.ssh import CONFIG, Machine
from infra.errors import UsageError

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def fresh(tmp_path: Path) -> LocalStore:
    return local_store(tmp_path, "fresh")


def openssl(*words: str | Path, text: str = "") -> str:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=True, input=text)
    return done.stdout


def test_of_two_who_begin_at_once_both_have_the_same_keys(tmp_path: Path) -> None:
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    found: list[Keys] = []
    together = threading.Barrier(3)

    def begin() -> None:
        store = LocalStore("both", tmp_path / ".secrets", env)
        together.wait(timeout=60)
        found.append(secrets.made(store, NOW))

    threads = [threading.Thread(target=begin) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, *others = found
    assert all(each.pki() == first.pki() and each.encryption == first.encryption for each in others)
    for pair in first.authorities.values():
        assert certificates.split(pair.joined()) == pair


def test_half_of_anothers_key_is_no_pair(keys: Keys) -> None:
    other = certificates.authority("kubernetes-ca", NOW)
    with pytest.raises(ValueError, match="certificate"):
        certificates.split(keys.ca.certificate + other.key)
    assert "PRIVATE" not in repr(keys) + repr(keys.ca)


def test_a_damaged_secret_is_said_without_its_value(fresh: LocalStore) -> None:
    secrets.made(fresh, NOW)
    fresh.put("kubernetes/pki/ca", "-----BEGIN NONSENSE-----")
    with pytest.raises(SecretsError, match="kubernetes/pki/ca") as caught:
        secrets.made(fresh, NOW)
    assert "NONSENSE" not in str(caught.value)


def test_openssl_agrees_with_what_was_made(keys: Keys, tmp_path: Path) -> None:
    pair = certificates.client(keys.ca, "ada", ["causeway:vision", "causeway:speech"], datetime.now(UTC),
                               timedelta(hours=12))  # fmt: skip
    (tmp_path / "ca.crt").write_text(keys.ca.certificate)
    (tmp_path / "ada.crt").write_text(pair.certificate)
    openssl("verify", "-purpose", "sslclient", "-CAfile", tmp_path / "ca.crt", tmp_path / "ada.crt")
    subject = openssl("x509", "-noout", "-subject", "-nameopt", "RFC2253", text=pair.certificate)
    assert subject.strip() == "subject=CN=ada,O=causeway:speech,O=causeway:vision"
    public = openssl("x509", "-noout", "-pubkey", text=keys.ca.certificate)
    der = subprocess.run(["openssl", "pkey", "-pubin", "-outform", "DER"], input=public.encode(),
                         capture_output=True, check=True).stdout  # fmt: skip
    import hashlib

    assert certificates.pin(keys.ca.certificate) == f"sha256:{hashlib.sha256(der).hexdigest()}"


def test_a_certificate_never_outlives_its_authority(keys: Keys) -> None:
    late = keys.ca.ends - timedelta(hours=1)
    assert certificates.client(keys.ca, "ada", [], late, timedelta(hours=12)).ends == keys.ca.ends


def test_kubeadm_keeps_what_it_finds_and_makes_the_rest(keys: Keys, tmp_path: Path) -> None:
    """What a master has before ``kubeadm init``: no key of an authority is made there."""
    kubeadm = need("kubeadm")
    before = keys.pki()
    for path, text in before.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o600)
    configuration = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "kubernetesVersion": "v1.36.0",
        "certificatesDir": str(tmp_path),
        "controlPlaneEndpoint": "api.test.internal:6443",
    }
    init = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "InitConfiguration",
        "localAPIEndpoint": {"advertiseAddress": "10.0.0.1"},
        "nodeRegistration": {"name": "master-1", "criSocket": "unix:///run/containerd/containerd.sock"},
    }
    config = tmp_path / "config.yaml"
    config.write_text(f"{json.dumps(configuration)}\n---\n{json.dumps(init)}\n")
    done = subprocess.run(
        [kubeadm, "init", "phase", "certs", "all", "--config", config],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for path, text in before.items():
        assert (tmp_path / path).read_text() == text, f"{path} was made anew"
    made = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.crt")}
    assert {"apiserver.crt", "apiserver-kubelet-client.crt", "front-proxy-client.crt", "etcd/server.crt",
            "etcd/peer.crt", "etcd/healthcheck-client.crt", "apiserver-etcd-client.crt"} <= made  # fmt: skip
    openssl("verify", "-CAfile", tmp_path / "ca.crt", tmp_path / "apiserver.crt")
    openssl("verify", "-CAfile", tmp_path / "etcd" / "ca.crt", tmp_path / "etcd" / "peer.crt")


def test_the_key_at_rest_is_rotated_in_three_steps(fresh: LocalStore) -> None:
    def names() -> list[str]:
        kept = fresh.get(secrets.ENCRYPTION)
        assert kept is not None
        found = json.loads(secrets.encryption_config(kept))
        return [each["name"] for each in found["resources"][0]["providers"][0]["secretbox"]["keys"]]

    secrets.made(fresh, NOW)
    assert names() == ["key1"]
    assert secrets.rotation(fresh) == "none"
    secrets.add_encryption_key(fresh)
    assert names() == ["key1", "key2"], "it reads before it writes: masters change one at a time"
    assert secrets.rotation(fresh) == "added"
    secrets.promote_encryption_key(fresh)
    assert names() == ["key2", "key1"]
    assert secrets.rotation(fresh) == "promoted"
    secrets.drop_encryption_keys(fresh)
    assert names() == ["key2"]
    assert secrets.rotation(fresh) == "none"


def test_who_was_revoked_is_locked_out_until_the_last_certificate_ends(fresh: LocalStore) -> None:
    assert secrets.revoke(fresh, "ada") is None
    secrets.remember(fresh, "ada", NOW + timedelta(hours=12))
    secrets.remember(fresh, "ada", NOW + timedelta(hours=1))
    assert secrets.locked_out(fresh, NOW) == {}
    secrets.revoke(fresh, "ada")
    assert secrets.locked_out(fresh, NOW) == {"ada": NOW + timedelta(hours=12)}
    assert secrets.locked_out(fresh, NOW + timedelta(hours=13)) == {}


# -- What machines are brought ------------------------------------------------------------------------------


def test_a_machine_has_its_secrets_and_loses_what_is_none_any_more(
    keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "hosts"
    folder.mkdir()
    with running(folder, "master-1") as hosts:
        monkeypatch.setenv(CONFIG, str(hosts.config))
        host = hosts["master-1"]
        join = joining.join_file("abcdef.0123456789abcdef", keys.ca.certificate, "api.test.internal:6443")
        write_secrets(Machine(host.fqdn), joining.secret_files(keys, join, master=True))
        host.shell("echo theirs > /etc/causeway/secrets/foreign")
        listed = host.shell(
            "cd /etc/causeway/secrets && find . -type f -printf '%m %P\\n' | sort -k 2"
        ).split("\n")
        assert "600 kubernetes-pki/etcd/ca.key" in listed
        assert "600 kubernetes-join.yaml" in listed
        assert {line.split()[0] for line in listed if line and "foreign" not in line} == {"600"}
        assert host.shell("stat -c %a /etc/causeway/secrets").strip() == "700"
        write_secrets(Machine(host.fqdn), joining.secret_files(keys, None, master=True))
        left = host.shell("cd /etc/causeway/secrets && find . -type f")
        assert "kubernetes-join.yaml" not in left
        assert "foreign" in left
        assert "kubernetes-encryption.yaml" in left


def test_workers_get_a_token_and_no_key(keys: Keys) -> None:
    assert joining.secret_files(keys, None, master=False) == {}
    assert list(joining.secret_files(keys, "{}", master=False)) == [
        "etc/causeway/secrets/kubernetes-join.yaml"
    ]


# -- Rules -------------------------------------------------------------------------------------------------


def member(name: str, *, healthy: bool = True) -> Member:
    return Member(name, f"https://{name}:2379", healthy, name == "a", "3.6.5", 20.0, False)


def test_a_master_leaves_only_while_most_of_etcd_stays() -> None:
    require_quorum([member("a"), member("b"), member("c")], "b")
    require_quorum([member("a"), member("b", healthy=False), member("c")], "b")
    with pytest.raises(UsageError, match="1 of 2"):
        require_quorum([member("a"), member("b", healthy=False), member("c")], "c")
    with pytest.raises(UsageError):
        require_quorum([member("a")], "a")


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, True),
        ({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}, False),
    ],
)
def test_selectors_match_as_kubernetes_has_it(selector: dict[str, object] | None, matches: bool) -> None:
    assert selects(selector, {"app": "web"}) is matches


def test_a_gate_gives_the_cluster_its_time() -> None:
    clock = iter(range(100)).__next__
    looks = iter([["not yet"], ["not yet"], []])
    assert settled(lambda: next(looks), seconds=50, beat=1, clock=clock, sleep=lambda _: None) == []
    clock = iter(range(0, 1000, 10)).__next__
    assert settled(lambda: ["never"], seconds=50, beat=1, clock=clock, sleep=lambda _: None) == ["never"]


def test_a_key_of_tokens_verifies_before_it_signs_and_after(fresh: LocalStore) -> None:
    first = secrets.made(fresh, NOW)
    assert secrets.token_rotation(fresh) == "none"
    secrets.add_token_key(fresh)
    added = secrets.made(fresh, NOW)
    assert secrets.token_rotation(fresh) == "added"
    assert added.pki()["sa.key"] == first.pki()["sa.key"], "the old key signs still"
    assert added.pki()["sa.pub"].startswith(first.pki()["sa.pub"])
    assert added.pki()["sa.pub"].count("BEGIN PUBLIC") == 2
    secrets.promote_token_key(fresh)
    promoted = secrets.made(fresh, NOW)
    assert (secrets.token_rotation(fresh), secrets.token_key_since(fresh)) == ("promoted", None)
    assert promoted.pki()["sa.key"] not in (first.pki()["sa.key"], "")
    assert promoted.pki()["sa.pub"].endswith(first.pki()["sa.pub"])
    secrets.sign_with_token_key(fresh, NOW)
    assert secrets.token_key_since(fresh) == NOW
    secrets.drop_token_keys(fresh)
    last = secrets.made(fresh, NOW)
    assert last.pki()["sa.key"] == promoted.pki()["sa.key"]
    assert last.pki()["sa.pub"].count("BEGIN PUBLIC") == 1
    assert secrets.token_rotation(fresh) == "none"
