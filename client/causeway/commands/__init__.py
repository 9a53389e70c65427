"""The implementation of each command: what it does and prints."""
