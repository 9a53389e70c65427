"""Finds files that look like secrets, by name or by content."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from causeway.code.tree import Entry, ignoring, unreadable
from causeway.errors import Problem

_NAMES = (
    ".env", ".env.*", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials", ".netrc", "_netrc",
    ".pypirc", ".pgpass", ".htpasswd", "*.p12", "*.pfx", "*.kdbx", "*.ovpn", "kubeconfig", "*.kubeconfig",
)  # fmt: skip
_EXAMPLES = (".env.example", ".env.sample", ".env.template")
_CONTENTS = {
    "a private key": rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
    "an AWS access key": rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": rb"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60,})\b",
    "a Hugging Face token": rb"\bhf_[A-Za-z]{34}\b",
    "a Slack token": rb"\bxox[abprs]-[A-Za-z0-9-]{20,}",
    "a Google API key": rb"\bAIza[0-9A-Za-z_-]{35}\b",
    # Keys of OpenAI, Anthropic and others have letters of both cases and digits; names of styles do not.
    "an API key": rb"\bsk-(?=[\w-]*[0-9])(?=[\w-]*[A-Z])(?=[\w-]*[a-z])[\w-]{32,}",
    "a key of Weights & Biases": (
        rb"(?i:wandb[\w.]{0,20}[\"']?\s*[=:(,]\s*(?:key\s*=\s*)?[\"']?)(?:[0-9a-f]{40}\b|wandb_v1_\w{30,})"
        rb"|\bwandb_v1_\w{60,}"
    ),
    "an npm token": rb"(?m:^//\S+:_(?:authToken|auth|password)\s*=\s*[^\s$]{8,})|\bnpm_[A-Za-z0-9]{36}\b",
    "a password in .netrc": rb"\bmachine\s+\S+\s+login\s+\S+\s+password\s+[^\s$<]{8,}",
}
_BEGINNINGS = (
    b"PRIVATE KEY-----",
    b"AKIA",
    b"ASIA",
    b"ghp_",
    b"gho_",
    b"ghu_",
    b"ghs_",
    b"ghr_",
    b"github_pat_",
    b"hf_",
    b"xox",
    b"AIza",
    b"sk-",
    b"wandb",
    b"WANDB",
    b"npm_",
    b":_auth",
    b":_password",
    b"machine",
)
"""A cheap first test: a file without any of these matches none of the patterns above."""
_PATTERN = re.compile(b"|".join(b"(" + pattern + b")" for pattern in _CONTENTS.values()))
_LARGEST = 1 << 20
"""In bytes; larger files are data."""


def find_secrets(folder: Path, entries: Iterable[Entry]) -> list[Problem]:
    """Return a problem for each file that is a secret or cannot be read."""
    found = []
    for entry in entries:
        try:
            what = _by_name(entry.path) or _by_contents(folder, entry)
        except OSError as error:
            found.append(unreadable(folder, entry.path, error))
            continue
        if what:
            hint = f"ignore it: {ignoring(entry.path)}; or ship it with --allow-secrets"
            found.append(Problem(str(folder / entry.path), "", f"looks like {what}", hint))
    return found


def _by_name(path: str) -> str:
    name = path.rsplit("/", 1)[-1]
    if name not in _EXAMPLES and any(fnmatchcase(name, pattern) for pattern in _NAMES):
        return "a secret, by its name"
    return ""


def _by_contents(folder: Path, entry: Entry) -> str:
    if entry.link is not None or entry.size > _LARGEST:
        return ""
    data = (folder / entry.path).read_bytes()
    if not any(beginning in data for beginning in _BEGINNINGS):
        return ""
    match = _PATTERN.search(data)
    return list(_CONTENTS)[match.lastindex - 1] if match and match.lastindex else ""
