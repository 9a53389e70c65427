"""Output for people and programs: Events, metrics, logs, notices, availability and explanations."""
