"""The Kubernetes cluster: brought up, looked at, upgraded, its nodes, its users' credentials, its
restoration."""
