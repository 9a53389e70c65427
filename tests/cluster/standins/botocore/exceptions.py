"""What botocore raises."""


class BotoCoreError(Exception):
    pass


class ClientError(Exception):
    pass
