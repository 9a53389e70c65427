"""Commands on the Kubernetes cluster: creation, status, upgrades, nodes, users' credentials, restoring."""
