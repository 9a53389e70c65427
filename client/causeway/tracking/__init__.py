"""Experiment tracking with MLflow, between a program and the cluster's server."""
