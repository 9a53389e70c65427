"""What nodes of the cluster do for themselves, by the distribution's Python (3.10 and later) and boto3."""
