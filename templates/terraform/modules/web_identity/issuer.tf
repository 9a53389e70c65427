# AWS STS takes a token for a role if it is signed with a key that its issuer publishes (IAM User Guide, "OIDC
# federation"). The bucket holds two documents for each issuer, which `invoke cluster.up` puts there: the discovery
# document and the key set of the API server. Both are public by their nature: they verify signatures and make none.
# An issuer is the bucket's own URL, for which the bucket has to be public, or a distribution before it (cloudfront.tf).

locals {
  documents = [".well-known/openid-configuration", "openid/v1/jwks"]
  public    = var.issuer.url != null

  issuers = merge(
    { for url in var.issuer.url[*] : "s3" => url },
    { for folder, each in aws_cloudfront_distribution.issuer : "cloudfront" => "https://${each.domain_name}" },
  )
}

resource "aws_s3_bucket" "issuer" {
  #checkov:skip=CKV_AWS_18:Public documents.
  #checkov:skip=CKV_AWS_21:Two documents that are written again as a whole.
  #checkov:skip=CKV_AWS_144:The documents can be made again from the API server at any time.
  #checkov:skip=CKV_AWS_145:Public documents.
  #checkov:skip=CKV2_AWS_6:Its policy has to be public where its URL is an issuer; nothing else is.
  #checkov:skip=CKV2_AWS_61:Nothing piles up.
  #checkov:skip=CKV2_AWS_62:Nothing waits for objects to arrive.
  bucket = var.issuer.bucket

  tags = merge(var.tags, var.issuer.tags, { Name = var.issuer.bucket })

  # Tokens name it: without it no role can be assumed.
  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket_public_access_block" "issuer" {
  #checkov:skip=CKV_AWS_54:Where the bucket's URL is an issuer, the policy below is public on purpose.
  #checkov:skip=CKV_AWS_56:Where the bucket's URL is an issuer, the policy below is public on purpose.
  bucket                  = aws_s3_bucket.issuer.id
  block_public_acls       = true
  block_public_policy     = !local.public
  ignore_public_acls      = true
  restrict_public_buckets = !local.public
}

resource "aws_s3_bucket_ownership_controls" "issuer" {
  bucket = aws_s3_bucket.issuer.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

data "aws_iam_policy_document" "issuer" {
  #checkov:skip=CKV_AWS_283:Two public documents.
  dynamic "statement" {
    for_each = local.public ? ["s3"] : []

    content {
      sid       = "ReadKeys"
      actions   = ["s3:GetObject"]
      resources = [for document in local.documents : "${aws_s3_bucket.issuer.arn}/${document}"]

      principals {
        type        = "*"
        identifiers = ["*"]
      }
    }
  }

  dynamic "statement" {
    for_each = aws_cloudfront_distribution.issuer

    content {
      sid       = "ReadKeysForDistribution"
      actions   = ["s3:GetObject"]
      resources = [for document in local.documents : "${aws_s3_bucket.issuer.arn}/${statement.key}/${document}"]

      principals {
        type        = "Service"
        identifiers = ["cloudfront.amazonaws.com"]
      }

      condition {
        test     = "StringEquals"
        variable = "aws:SourceArn"
        values   = [statement.value.arn]
      }
    }
  }

  statement {
    sid       = "OnlyOverTls"
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = [aws_s3_bucket.issuer.arn, "${aws_s3_bucket.issuer.arn}/*"]

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
}

resource "aws_s3_bucket_policy" "issuer" {
  bucket = aws_s3_bucket.issuer.id
  policy = data.aws_iam_policy_document.issuer.json

  # S3 refuses to change a bucket's policy and its public access block at the same moment.
  depends_on = [aws_s3_bucket_public_access_block.issuer]
}

resource "aws_iam_openid_connect_provider" "this" {
  for_each = local.issuers

  url            = each.value
  client_id_list = ["sts.amazonaws.com"]

  tags = merge(var.tags, { Name = var.issuer.bucket })

  # Tokens of the issuer are refused as soon as it is gone, and some may have a day to live.
  lifecycle {
    prevent_destroy = true
  }
}

moved {
  from = aws_iam_openid_connect_provider.this
  to   = aws_iam_openid_connect_provider.this["s3"]
}
