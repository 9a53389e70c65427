"""The authorities that sign the certificates of databases at RDS, which no trust store has.

https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.SSL.html ("Certificate bundles by AWS
Region"); for China, https://docs.amazonaws.cn/en_us/AmazonRDS/latest/UserGuide/UsingWithRDS.SSL.html
"""

from __future__ import annotations

from http.client import HTTPException
from typing import Final

from infra.errors import DriveError

_HOSTS: Final = {
    "cn-": "rds-truststore.s3.cn-north-1.amazonaws.com.cn",
    "us-gov-": "truststore.pki.us-gov-west-1.rds.amazonaws.com",
    "": "truststore.pki.rds.amazonaws.com",
}
"""The beginning of a region's name → the server that has its bundle; the first that fits."""
_SECONDS: Final = 20


def bundle_of(region: str) -> str:
    """The address of a region's bundle."""
    host = next(host for start, host in _HOSTS.items() if region.startswith(start))
    return f"https://{host}/{region}/{region}-bundle.pem"


def fetch(region: str, url: str = "") -> str:
    """The certificates of a region's authorities, in PEM, from its bundle or ``url``. DriveError.

    Amazon's web server is known by the authorities of this machine; a bundle is not signed otherwise.
    """
    from urllib.request import urlopen

    url = url or bundle_of(region)
    try:
        with urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310 - https
            text = answer.read().decode("ascii")
    except (OSError, HTTPException, ValueError) as problem:
        raise DriveError(f"{url} does not answer: {getattr(problem, 'reason', problem)}") from None
    return _checked(text, url)


def _checked(text: str, url: str) -> str:
    """Certificates of authorities and nothing else: a proxy's page would keep MLflow from its database."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(text.encode())
        kinds = [each.extensions.get_extension_for_class(x509.BasicConstraints).value.ca for each in found]
    except (ValueError, x509.ExtensionNotFound):
        kinds = [False]
    if not all(kinds):
        raise DriveError(f"{url} answers with something else than certificates of authorities")
    return text
