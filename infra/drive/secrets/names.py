"""Names of secrets that more than one package knows."""

from __future__ import annotations

from typing import Final

PKI_ROOT: Final = "pki/root"
"""The root of the laptops' PKI: without it there is no PKI, which is so known without opening one."""
