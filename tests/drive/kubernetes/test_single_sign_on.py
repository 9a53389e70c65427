"""Single sign-on: a real API server asks a real issuer, by HTTPS with discovery and keys, of RS256 tokens."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from drive.kubernetes.conftest import NO_ISSUERS, SIGN_IN
from drive.kubernetes.https_pages import serving
from golden_clusters import golden
from kube.plane import Plane
from kube_tools import kubectl
from msgspec.structs import replace

from infra.drive.kubernetes import kubeconfig
from infra.model import Cluster
from infra.model.platform import Oidc
from infra.render.kubernetes import authentication

CLIENT = "kubectl"
NASTY = """it's "$\\{n}" \\ 😀 é\t{}@lab.example"""
CROWD = 2000
"""People of a large spec: all of them are in the rules."""


def plain(number: int) -> str:
    """As JSON Web Keys write numbers (RFC 7518, Base64urlUInt)."""
    return encoded(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass
class Issuer:
    url: str
    authority: str
    key: rsa.RSAPrivateKey

    def token(self, *, key: rsa.RSAPrivateKey | None = None, life: float = 600, **claims: Any) -> str:
        now = datetime.now(UTC)
        stated = {
            "iss": self.url,
            "aud": CLIENT,
            "sub": "4711",
            "iat": int((now - timedelta(hours=1)).timestamp()),
            "exp": int((now + timedelta(seconds=life)).timestamp()),
            **claims,
        }
        head = {"alg": "RS256", "kid": "one", "typ": "JWT"}
        signed = ".".join(encoded(json.dumps(part).encode()) for part in (head, stated))
        signature = (key or self.key).sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{encoded(signature)}"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    numbers = key.public_key().public_numbers()
    public = {
        "kty": "RSA",
        "alg": "RS256",
        "use": "sig",
        "kid": "one",
        "n": plain(numbers.n),
        "e": plain(numbers.e),
    }
    own: list[str] = []

    def page(path: str) -> tuple[int, bytes]:
        if path == "keys":
            return 200, json.dumps({"keys": [public]}).encode()
        if path == ".well-known/openid-configuration":
            about = {
                "issuer": own[0],
                "jwks_uri": f"{own[0]}/keys",
                "authorization_endpoint": f"{own[0]}/authorize",
                "token_endpoint": f"{own[0]}/token",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }
            return 200, json.dumps(about).encode()
        return 404, b""

    with serving(tmp_path_factory.mktemp("issuer") / "pages", page) as (url, authority):
        own.append(url)
        yield Issuer(url, authority.read_text(), key)


def cluster(issuer: Issuer, people: dict[str, str], claim: str = "email") -> Cluster:
    base = golden("research")
    oidc = Oidc(issuer=issuer.url, client=CLIENT, claim=claim, authority=issuer.authority, people=people)
    return replace(base, access=replace(base.access, oidc=oidc))


def written(file: Path, made: Cluster) -> None:
    """As the cookbook puts it on a master: in one step."""
    fresh = file.with_suffix(".new")
    fresh.write_text(yaml.safe_dump(authentication.configuration(made)))
    fresh.replace(file)


@dataclass
class Asked:
    plane: Plane
    file: Path

    def who(self, token: str) -> tuple[str, set[str]] | int:
        return self.plane.who(token)


ADA: dict[str, Any] = {"email": "ada@lab.example", "email_verified": True}
EVERYBODY = {"system:authenticated"}


@pytest.fixture(scope="module")
def asked(plane: Plane, issuer: Issuer) -> Iterator[Asked]:
    found = Asked(plane, plane.folder / SIGN_IN)
    crowd = {f"user{number}@lab.example": f"user{number}" for number in range(CROWD)}
    written(found.file, cluster(issuer, {"ada@lab.example": "ada", NASTY: "nasty", **crowd}))
    patiently(found, issuer.token(**ADA), ("ada", EVERYBODY))
    yield found
    found.file.write_text(json.dumps(NO_ISSUERS))


def patiently(asked: Asked, token: str, wanted: object) -> None:
    """The server reads its file, and the issuer's keys, in its own time."""
    deadline = time.monotonic() + 120
    while (found := asked.who(token)) != wanted and time.monotonic() < deadline:
        time.sleep(1)
    assert found == wanted


def test_a_token_makes_its_person_the_user_of_the_spec(asked: Asked, issuer: Issuer) -> None:
    patiently(asked, issuer.token(**ADA), ("ada", EVERYBODY))
    assert asked.who(issuer.token(**{**ADA, "email": "Ada@Lab.Example"})) == ("ada", EVERYBODY)
    assert asked.who(issuer.token(email=NASTY, email_verified=True)) == ("nasty", EVERYBODY)
    last = f"user{CROWD - 1}"
    assert asked.who(issuer.token(email=f"{last}@lab.example", email_verified=True)) == (last, EVERYBODY)


@pytest.mark.parametrize("groups", [{}, {"groups": []}, {"groups": ["system:masters", "engineers"]}])
def test_groups_of_a_token_are_nothing(asked: Asked, issuer: Issuer, groups: dict[str, Any]) -> None:
    """Rights hang on the spec's names: a person in no group is one too, and an issuer makes nobody root."""
    patiently(asked, issuer.token(**ADA, **groups), ("ada", EVERYBODY))


@pytest.mark.parametrize(
    "claims",
    [
        {"email": "eve@lab.example", "email_verified": True},
        {"email": "ada@lab.example", "email_verified": False},
        {"email": "ada@lab.example"},
        {"email_verified": True, "preferred_username": "ada"},
        {**ADA, "aud": "another-program"},
        {**ADA, "iss": "https://elsewhere.example"},
        {**ADA, "life": -60},
    ],
    ids=["not of the spec", "unverified", "unsaid", "no address", "audience", "issuer", "expired"],
)
def test_who_is_refused(asked: Asked, issuer: Issuer, claims: dict[str, Any]) -> None:
    patiently(asked, issuer.token(**ADA), ("ada", EVERYBODY))
    assert asked.who(issuer.token(**claims)) == 401


def test_a_token_that_somebody_else_signed_is_refused(asked: Asked, issuer: Issuer) -> None:
    patiently(asked, issuer.token(**ADA), ("ada", EVERYBODY))
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert asked.who(issuer.token(key=other, **ADA)) == 401


def test_who_leaves_the_spec_is_refused_without_a_restart(asked: Asked, issuer: Issuer) -> None:
    grace: dict[str, Any] = {"email": "grace@lab.example", "email_verified": True}
    patiently(asked, issuer.token(**ADA), ("ada", EVERYBODY))
    written(asked.file, cluster(issuer, {"grace@lab.example": "grace"}))
    patiently(asked, issuer.token(**grace), ("grace", EVERYBODY))
    assert asked.who(issuer.token(**ADA)) == 401


def test_by_another_claim_it_is_the_login_itself(asked: Asked, issuer: Issuer) -> None:
    written(asked.file, cluster(issuer, {"ada": "ada"}, claim="preferred_username"))
    patiently(asked, issuer.token(preferred_username="ada"), ("ada", EVERYBODY))
    for name in ("eve", "system:admin", "system:kube-controller-manager"):
        assert asked.who(issuer.token(preferred_username=name)) == 401


PLUGIN = """\
#!/bin/sh
echo "$@" >ASKED
cat ANSWER
"""


def test_kubectl_asks_by_our_kubeconfig_with_a_stand_in_for_kubelogin(
    asked: Asked, issuer: Issuer, tmp_path: Path
) -> None:
    """kubelogin opens a browser; what stands for it says what it was asked, and has the issuer's token."""
    people = {"ada@lab.example": "ada"}
    made = cluster(issuer, people)
    written(asked.file, made)
    token = issuer.token(**ADA)
    patiently(asked, token, ("ada", EVERYBODY))
    oidc = made.access.oidc
    assert oidc is not None
    authority = asked.plane.keys.ca.certificate
    document = kubeconfig.with_single_sign_on(asked.plane.endpoint, authority, "lab", "ada", oidc)
    (tmp_path / "config").write_text(json.dumps(document))
    status = {"token": token}
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    (tmp_path / "answer").write_text(json.dumps(answer))
    script = PLUGIN.replace("ASKED", str(tmp_path / "asked")).replace("ANSWER", str(tmp_path / "answer"))
    (tmp_path / "kubectl-oidc_login").write_text(script)
    (tmp_path / "kubectl-oidc_login").chmod(0o755)
    (tmp_path / "kubectl").symlink_to(kubectl())
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "config")}
    done = subprocess.run(
        ["kubectl", "auth", "whoami", "-o", "json"], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"]["userInfo"]["username"] == "ada"
    words = (tmp_path / "asked").read_text().split()
    assert words[0] == "get-token"
    assert f"--oidc-issuer-url={issuer.url}" in words
    assert "--oidc-client-id=kubectl" in words


def test_without_an_issuer_no_token_is_taken(asked: Asked, issuer: Issuer) -> None:
    """What the cookbook writes when the issuer has left the spec."""
    written(asked.file, cluster(issuer, {"ada@lab.example": "ada"}))
    patiently(asked, issuer.token(**ADA), ("ada", EVERYBODY))
    asked.file.write_text(yaml.safe_dump(NO_ISSUERS))
    patiently(asked, issuer.token(**ADA), 401)
