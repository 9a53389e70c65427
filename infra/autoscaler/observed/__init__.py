"""What a loop sees: the cluster's objects and the groups' machines, decoded, checked and put in order."""
