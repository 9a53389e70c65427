"""The cluster as it is: its keys, its API, what is applied to it, its nodes, versions and snapshots."""
