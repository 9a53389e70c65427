"""What boto3 raises."""


class Boto3Error(Exception):
    pass
