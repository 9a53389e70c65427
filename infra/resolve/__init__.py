"""Spec → Cluster: addresses, names and peers, each decided once."""
