"""The Kubernetes side: reads by lists and watches, and writes.

Data is read with urllib3 and decoded once, when it changes; the ``kubernetes`` package only provides the
API's address and credentials. No decisions are made here.

================  ==============================================================================
``credentials``   a kubeconfig, or a pod's service account; read again as files change
``client``        one call: timeouts, retries, errors as messages
``kinds``         the watched kinds, and which of them are optional
``watching``      a cache per kind, maintained by list and watch
``reading``       a fresh read before something is terminated
``lease``         leader election
``store``         the memory, in a ConfigMap
``writing``       taints, evictions, deletions, conditions of provisioning requests
``events``        Events of pods, for users
================  ==============================================================================
"""
