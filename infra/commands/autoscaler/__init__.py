"""Commands about the autoscaler: why a pod waits, the cost of a trace of jobs, its status."""
