"""The running cluster: keys, API, applied objects, nodes, upgrades and snapshots."""
