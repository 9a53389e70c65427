"""The observed state of one loop: Kubernetes objects and machines of groups, decoded, validated and
combined."""
