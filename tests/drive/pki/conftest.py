"""A PKI on an encrypted file, with a clock that a test turns. Sealing is made cheap; one test has it real."""

from __future__ import annotations

from pathlib import Path

import pytest
from drive.pki.pki_lab import PASSPHRASE, Clock
from stores import local_store

from infra.drive.pki import Pki, encryption
from infra.drive.secrets.local import LocalStore


@pytest.fixture(autouse=True)
def cheap_sealing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encryption, "COST", 4)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return local_store(tmp_path, "lab")


@pytest.fixture
def pki(store: LocalStore, clock: Clock) -> Pki:
    pki = Pki(store, domain="lab.internal", clock=clock)
    pki.create(PASSPHRASE, "lab")
    return pki
