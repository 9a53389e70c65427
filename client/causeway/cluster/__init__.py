"""The cluster as a researcher meets it: what it offers, the store of code, and runs as JobSets."""
