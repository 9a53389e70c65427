"""Names of identities and signers in the cluster that manifests and commands share."""

from __future__ import annotations

from typing import Final

KUBECONFIGS: Final = "causeway:kubeconfigs"
"""The user that a master impersonates to have users' certificates signed, with no other rights."""
CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
"""Signs client certificates for the API. Its requests are not approved automatically, and the API server
refuses those for ``system:masters`` (Kubernetes, "Certificates and Certificate Signing Requests")."""
