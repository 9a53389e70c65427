"""Certificates for laptops and VPN servers: the CA, issued certificates, and revocations."""

from infra.drive.pki.expiry import Due
from infra.drive.pki.pki import Pki
from infra.drive.pki.problems import PkiError
from infra.drive.pki.records import Certificate
from infra.drive.pki.revocation import SPARE, crl_ends

__all__ = ["SPARE", "Certificate", "Due", "Pki", "PkiError", "crl_ends"]
