"""What AWS's STS would read of an issuer is read over HTTPS, from a real server with its own certificate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from drive.kubernetes.https_pages import serving

from infra.drive.kubernetes import issuer
from infra.model import Outputs
from infra.model.kubernetes import Issuer, WebIdentity

KEYS = {"keys": [{"kid": "first"}, {"kid": "second"}]}


@pytest.fixture
def pages() -> dict[str, Any]:
    """Path → document, or status."""
    return {}


@pytest.fixture
def url(tmp_path: Path, pages: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    def page(path: str) -> tuple[int, bytes]:
        found = pages.get(path, 404)
        return (found, b"") if isinstance(found, int) else (200, json.dumps(found).encode())

    with serving(tmp_path / "https", page) as (url, trusted):
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        pages[".well-known/openid-configuration"] = {"issuer": url, "jwks_uri": f"{url}/openid/v1/jwks"}
        pages["openid/v1/jwks"] = KEYS
        yield url


def fault(url: str, *, endpoint: str = "https://s3.us-west-2.amazonaws.com") -> str:
    """Of the API server's keys there are two; it and S3 are played here."""
    api, s3 = MagicMock(), MagicMock()
    api.text.return_value = json.dumps(KEYS)
    s3.meta.endpoint_url = endpoint
    identity = WebIdentity("lab-oidc", "us-west-2", {}, (Issuer("cloudfront", "", None),), {})
    return issuer.unreadable(api, s3, identity, Outputs(issuers={"cloudfront": url})).get(url, "")


def test_an_issuer_with_all_keys_is_readable(url: str) -> None:
    assert fault(url) == ""


@pytest.mark.parametrize(
    ("path", "answer", "says"),
    [
        (".well-known/openid-configuration", 403, "HTTP 403"),
        (".well-known/openid-configuration", {"issuer": "https://else.example"}, "https://else.example"),
        (".well-known/openid-configuration", [], "can't be read"),
        ("openid/v1/jwks", 404, "HTTP 404"),
        ("openid/v1/jwks", {"keys": [{"kid": "first"}]}, "lacks a key"),
    ],
)
def test_what_is_wrong_with_one_is_said(
    url: str, pages: dict[str, Any], path: str, answer: object, says: str
) -> None:
    pages[path] = answer
    assert says in fault(url)


def test_a_certificate_that_is_not_trusted_is_a_fault(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    assert "CERTIFICATE_VERIFY_FAILED" in fault(url)


def test_nobody_there_is_a_fault() -> None:
    assert "refused" in fault("https://localhost:1")


def test_with_an_endpoint_in_the_place_of_aws_its_servers_are_not_asked() -> None:
    assert fault("https://d111111abcdef8.cloudfront.net", endpoint="http://127.0.0.1:5000") == ""
