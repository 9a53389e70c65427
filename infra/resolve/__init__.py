"""Spec → Cluster: decides addresses, names and peers, each in one place."""
