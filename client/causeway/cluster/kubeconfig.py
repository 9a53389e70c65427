"""Address and credentials of a cluster, from a kubeconfig or from inside a pod.

Certificates and tokens are read here. Everything else in a kubeconfig (``exec``, several files) is left to
the library ``kubernetes``, whose import takes more than half a second of CPU time, longer than everything
else together.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from causeway.errors import UnreachableError

_HINT = "set KUBECONFIG to the file that your engineers gave you"
ACCOUNT_FILES = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts the token of a pod's service account."""
_CLUSTER = {"server", "certificate-authority", "certificate-authority-data", "tls-server-name", "extensions"}
_USER = {"client-certificate", "client-certificate-data", "client-key", "client-key-data", "token"}


@dataclass(frozen=True)
class Way:
    """Address of the API, and the user's credentials."""

    host: str
    """``https://api.example:6443``."""
    namespace: str | None
    """The namespace of the context."""
    context: ssl.SSLContext
    """The TLS context: verifies the API's certificate, and presents the user's."""
    server_name: str | None
    """The name in the API's certificate; None for the host."""
    token: str | None
    certificate: bytes | None
    """The user's certificate in PEM."""


def exists() -> bool:
    """Whether this laptop has a kubeconfig."""
    names = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return any(Path(name).expanduser().exists() for name in names.split(os.pathsep))


def read(path: str | None) -> Way:
    """Read a kubeconfig, by default ``$KUBECONFIG`` or ``~/.kube/config``. Raises UnreachableError if there
    is none."""
    name = path or os.environ.get("KUBECONFIG") or "~/.kube/config"
    if os.pathsep in name:
        return _by_library(path)
    file = Path(name).expanduser()
    try:
        found = yaml.load(file.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  both are safe
        context = _named(found, "context", found["current-context"])
        cluster = _named(found, "cluster", context["cluster"])
        user = _named(found, "user", context["user"])
        if not (cluster.keys() <= _CLUSTER and user.keys() <= _USER):
            return _by_library(path)
        certificate = _bytes(user, "client-certificate", file.parent)
        return Way(
            cluster["server"].rstrip("/"),
            context.get("namespace"),
            _tls(
                _bytes(cluster, "certificate-authority", file.parent),
                certificate,
                _bytes(user, "client-key", file.parent),
            ),
            cluster.get("tls-server-name"),
            user.get("token"),
            certificate,
        )
    except OSError as error:
        raise UnreachableError(f"no kubeconfig: {file}: {error.strerror or error}; {_HINT}") from None
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreachableError(f"no kubeconfig: {file} cannot be used: {_what(error)}; {_HINT}") from None


def _what(error: Exception) -> str:
    """Describe what is wrong with a kubeconfig."""
    if isinstance(error, KeyError):
        return f"no {error.args[0]}"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1} is not YAML: {error.problem}"
    if isinstance(error, TypeError | AttributeError):  # a string where a mapping is expected, or nothing
        return "not a kubeconfig"
    return " ".join(str(error).split())


def of_pod() -> Way:
    """Use the pod's service account (Kubernetes, "Accessing the Kubernetes API from a Pod")."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    address = f"[{host}]" if ":" in host else host
    authority = _tls((ACCOUNT_FILES / "ca.crt").read_bytes())
    return Way(f"https://{address}:{port}", None, authority, None, token_of_pod(), None)


def token_of_pod() -> str:
    """Read the current token of the pod's service account."""
    return (ACCOUNT_FILES / "token").read_text(encoding="utf-8").strip()


def configuration(path: str | None) -> Any:
    """Load the kubeconfig with the library, for WebSockets and for other ways to authenticate."""
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, load_kube_config

    made = Configuration()
    try:
        load_kube_config(path, client_configuration=made)
    except (
        ConfigException,
        yaml.YAMLError,
        OSError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        raise UnreachableError(f"no kubeconfig: {_what(error).rstrip('.')}; {_HINT}") from None
    return made


def _by_library(path: str | None) -> Way:
    from kubernetes.config import list_kube_config_contexts

    made = configuration(path)
    _, active = list_kube_config_contexts(path)
    read_ = [Path(file).read_bytes() if file else None
             for file in (made.ssl_ca_cert, made.cert_file, made.key_file)]  # fmt: skip
    context = _tls(*read_)
    if not made.verify_ssl:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    token = str(made.get_api_key_with_prefix("BearerToken") or "").removeprefix("Bearer ")
    namespace = active["context"].get("namespace")
    return Way(made.host, namespace, context, made.tls_server_name, token or None, read_[1])


def _named(config: Any, kind: str, name: str) -> Mapping[str, Any]:
    """Return an entry of ``clusters``, ``contexts`` or ``users``."""
    for each in config[f"{kind}s"]:
        if each["name"] == name:
            found: Mapping[str, Any] = each[kind]
            return found
    raise ValueError(f"no {kind} {name}")


def _bytes(values: Mapping[str, Any], key: str, folder: Path) -> bytes | None:
    """Return a value of a kubeconfig, or the content of the file that it names."""
    if data := values.get(f"{key}-data"):
        return base64.b64decode(data, validate=True)
    return (folder / values[key]).read_bytes() if key in values else None


def _tls(
    authority: bytes | None, certificate: bytes | None = None, key: bytes | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if bool(certificate) is not bool(key):
        raise ValueError("a client certificate needs its key")
    if certificate and key:
        # OpenSSL's functions read certificates from files only.
        with tempfile.NamedTemporaryFile() as both:
            both.write(certificate + b"\n" + key)
            both.flush()
            context.load_cert_chain(both.name)
    return context
