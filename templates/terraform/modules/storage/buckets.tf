resource "aws_s3_bucket" "this" {
  #checkov:skip=CKV_AWS_18:Who reads which object is CloudTrail's to record, for the account as a whole.
  #checkov:skip=CKV_AWS_144:Data sets are large, and stay in the region of the nodes that read them.
  #checkov:skip=CKV_AWS_145:Encrypted with S3's own keys, without a charge by request, unless a key is given.
  #checkov:skip=CKV2_AWS_62:Nothing waits for objects to arrive.
  for_each = var.buckets

  bucket = each.value.bucket

  tags = merge(var.tags, each.value.tags, { Name = each.value.bucket })

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket_public_access_block" "this" {
  for_each = var.buckets

  bucket                  = aws_s3_bucket.this[each.key].id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "this" {
  for_each = var.buckets

  bucket = aws_s3_bucket.this[each.key].id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "this" {
  for_each = var.buckets

  bucket = aws_s3_bucket.this[each.key].id

  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm     = var.kms_key == null ? "AES256" : "aws:kms"
      kms_master_key_id = var.kms_key
    }

    # One request to KMS for many objects, where KMS is asked at all.
    bucket_key_enabled = var.kms_key == null ? null : true
  }
}

resource "aws_s3_bucket_versioning" "this" {
  for_each = var.buckets

  bucket = aws_s3_bucket.this[each.key].id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "this" {
  for_each = var.buckets

  bucket = aws_s3_bucket.this[each.key].id

  rule {
    id     = "old-versions"
    status = "Enabled"

    filter {}

    noncurrent_version_expiration {
      noncurrent_days = each.value.versions_days
    }
  }

  rule {
    id     = "leftovers"
    status = "Enabled"

    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }

    expiration {
      expired_object_delete_marker = true
    }
  }

  dynamic "rule" {
    for_each = each.value.archive_days[*]

    content {
      id     = "archive"
      status = "Enabled"

      filter {}

      transition {
        days          = rule.value
        storage_class = each.value.archive_class
      }
    }
  }

  dynamic "rule" {
    for_each = each.value.expire

    content {
      id     = rule.key == "" ? "expire" : "expire-${trimsuffix(rule.key, "/")}"
      status = "Enabled"

      filter {
        prefix = rule.key == "" ? null : rule.key
      }

      expiration {
        days = rule.value
      }
    }
  }

  # Rules about versions need versions.
  depends_on = [aws_s3_bucket_versioning.this]
}

data "aws_iam_policy_document" "bucket" {
  for_each = var.buckets

  statement {
    sid       = "OnlyOverTls"
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = [aws_s3_bucket.this[each.key].arn, "${aws_s3_bucket.this[each.key].arn}/*"]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }

  statement {
    sid       = "OnlyOverTls12"
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = [aws_s3_bucket.this[each.key].arn, "${aws_s3_bucket.this[each.key].arn}/*"]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "NumericLessThan"
      variable = "s3:TlsVersion"
      values   = ["1.2"]
    }
  }
}

resource "aws_s3_bucket_policy" "this" {
  for_each = var.buckets

  bucket = aws_s3_bucket.this[each.key].id
  policy = data.aws_iam_policy_document.bucket[each.key].json

  # S3 refuses to change a bucket's policy and its public access block at the same moment.
  depends_on = [aws_s3_bucket_public_access_block.this]
}
