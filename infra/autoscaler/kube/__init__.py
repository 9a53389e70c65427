"""The Kubernetes side: what is seen by lists and watches, and what is written.

Bytes come by urllib3 and are decoded once, where they change; the ``kubernetes`` package says only where the
API is and who we are. Nothing here decides anything.

================  ==============================================================================
``credentials``   who asks: a kubeconfig, or a pod's service account; read again as files change
``client``        one call: timeouts, retries, errors in words
``kinds``         what is watched, and which of it a cluster may do without
``watching``      a cache a kind, kept by list and watch
``reading``       one fresh look, before something is ended
``lease``         who writes
``store``         what is remembered, in a ConfigMap
``writing``       taints, evictions, removals, answers to provisioning requests
``events``        what people read at their pods
================  ==============================================================================
"""
