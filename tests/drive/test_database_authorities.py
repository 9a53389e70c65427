"""Who signs the certificates of databases at RDS: fetched, checked, and kept where they can't be fetched."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from kube.plane import planes
from stores import local_store
from web import Answer, pages

from infra.commands.cluster.tracking import bring_access
from infra.drive.database_authorities import bundle_of, fetch
from infra.drive.kubernetes import certificates, secrets
from infra.errors import DriveError
from infra.model.research import ManagedDatabase

NOW = datetime.now(UTC)
AUTHORITY = certificates.authority("Amazon RDS us-west-2 Root CA", NOW)
OTHER = certificates.server(AUTHORITY, "db", ["db.example"], NOW, timedelta(days=1))


@contextmanager
def serving(text: str) -> Iterator[str]:
    """Where bundles are, as the address of one."""

    def page(path: str, _: object) -> Answer:
        return Answer(200 if path == "/us-west-2/us-west-2-bundle.pem" else 404, text.encode())

    with pages(page) as port:
        yield f"http://127.0.0.1:{port}/{{region}}/{{region}}-bundle.pem"


def test_a_regions_authorities_are_fetched() -> None:
    with serving(AUTHORITY.certificate) as bundle:
        assert fetch("us-west-2", bundle.format(region="us-west-2")) == AUTHORITY.certificate
        with pytest.raises(DriveError):
            fetch("eu-west-1", bundle.format(region="eu-west-1"))


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("eu-west-1", "truststore.pki.rds.amazonaws.com"),
        ("us-gov-east-1", "truststore.pki.us-gov-west-1.rds.amazonaws.com"),
        ("cn-northwest-1", "rds-truststore.s3.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_each_partition_has_its_own_server(region: str, host: str) -> None:
    assert bundle_of(region) == f"https://{host}/{region}/{region}-bundle.pem"


@pytest.mark.parametrize(
    "text", ["", "<html>Sign in to the network</html>", OTHER.certificate, AUTHORITY.certificate + "é"]
)
def test_what_is_not_authorities_is_refused(text: str) -> None:
    with serving(text) as bundle, pytest.raises(DriveError):
        fetch("us-west-2", bundle.format(region="us-west-2"))


def test_authorities_are_in_the_secret_and_stay_where_they_cannot_be_fetched(tmp_path: Path) -> None:
    store = local_store(tmp_path)
    keys = secrets.made(store, NOW)
    managed = ManagedDatabase("x", "west", "us-west-2", (), "db.t4g.small", 20, 100, False, 14, {})
    with (
        serving(AUTHORITY.certificate) as bundle,
        serving("") as broken,
        planes(tmp_path, keys) as plane,
    ):
        api = plane.driven
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mlflow"}}
        api.create("/api/v1/namespaces", namespace)

        def had() -> set[str]:
            found = api.find("/api/v1/namespaces/mlflow/secrets/database") or {}
            values = {name: base64.b64decode(text) for name, text in found.get("data", {}).items()}
            assert values.get("authorities.pem", b"") in (b"", AUTHORITY.certificate.encode())
            return {*values}

        with pytest.raises(DriveError):
            bring_access(api, store, managed, partial(fetch, url=broken))
        assert had() == set()
        assert (
            bring_access(api, store, managed, partial(fetch, url=bundle.format(region="us-west-2")))
            == "brought"
        )
        assert had() == {"password", "authorities.pem"}
        assert bring_access(api, store, managed, partial(fetch, url=broken)).startswith("unchanged; ")
        assert had() == {"password", "authorities.pem"}
        bring_access(api, store, None)
        assert had() == {"password"}
