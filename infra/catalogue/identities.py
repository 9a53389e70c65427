"""Names of identities and signers in the cluster that both the manifests and the commands use."""

from __future__ import annotations

from typing import Final

KUBECONFIGS: Final = "causeway:kubeconfigs"
"""The user that a master impersonates to have people's certificates signed, and for nothing else."""
CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
"""Signs certificates of clients of the API. Nothing approves its requests by itself, and the API server
refuses those for ``system:masters`` (Kubernetes, "Certificates and Certificate Signing Requests")."""
