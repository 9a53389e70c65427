# Beside the module web_identity, whose files the test puts here: the bucket that it gives rights to.

resource "aws_s3_bucket" "work" {
  bucket = var.store.bucket
}

resource "aws_s3_object" "secret" {
  bucket  = aws_s3_bucket.work.id
  key     = "code/user-alan/secret"
  content = "alan's"
}
