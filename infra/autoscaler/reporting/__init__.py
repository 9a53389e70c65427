"""What people and programs read: Events, metrics, logs, notices, availability and explanations."""
