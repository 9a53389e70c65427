"""All effects: tools, cloud APIs, local files. Heavy libraries are imported inside functions."""
