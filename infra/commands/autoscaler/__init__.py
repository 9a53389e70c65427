"""The autoscaler from an engineer's machine: why a pod waits, what a trace would cost, how it is."""
