"""The cluster as a researcher sees it: what it offers, the store of code, and runs as JobSets."""
