"""A stand-in, beside that of boto3."""
