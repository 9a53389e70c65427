# For accounts that forbid public buckets: the bucket stays private, and a distribution reads one folder of it with
# requests that it signs (CloudFront Developer Guide, "Restrict access to an Amazon S3 origin"). Its domain is the issuer.

locals {
  # Managed-CachingOptimized: for as long as the documents' own Cache-Control says (CloudFront Developer Guide, "Use
  # managed cache policies").
  cache_policy = "658327ea-f89d-4fab-a63d-7e88639e58f6"
}

resource "aws_cloudfront_origin_access_control" "issuer" {
  for_each = toset(var.issuer.cloudfront_folder[*])

  name                              = var.issuer.bucket
  description                       = "Reads the keys that verify tokens of service accounts."
  origin_access_control_origin_type = "s3"
  signing_behavior                  = "always"
  signing_protocol                  = "sigv4"
}

resource "aws_cloudfront_distribution" "issuer" {
  #checkov:skip=CKV_AWS_68:Two static public documents, without anything that a firewall would keep out.
  #checkov:skip=CKV_AWS_86:Public documents.
  #checkov:skip=CKV_AWS_174:The certificate of *.cloudfront.net comes with its own lower bound.
  #checkov:skip=CKV_AWS_305:Nothing is asked for at the root.
  #checkov:skip=CKV_AWS_310:The documents are in one bucket; STS keeps what it has read while that is away.
  #checkov:skip=CKV_AWS_374:STS reads from wherever it is.
  #checkov:skip=CKV2_AWS_32:Programs read the documents, not browsers.
  #checkov:skip=CKV2_AWS_42:The domain of the distribution is the issuer.
  #checkov:skip=CKV2_AWS_47:Nothing is executed.
  for_each = toset(var.issuer.cloudfront_folder[*])

  comment         = var.issuer.bucket
  enabled         = true
  is_ipv6_enabled = true
  http_version    = "http2and3"
  price_class     = "PriceClass_100"

  origin {
    origin_id                = "documents"
    domain_name              = aws_s3_bucket.issuer.bucket_regional_domain_name
    origin_path              = "/${each.key}"
    origin_access_control_id = aws_cloudfront_origin_access_control.issuer[each.key].id
  }

  default_cache_behavior {
    target_origin_id       = "documents"
    viewer_protocol_policy = "https-only"
    allowed_methods        = ["GET", "HEAD"]
    cached_methods         = ["GET", "HEAD"]
    cache_policy_id        = local.cache_policy
  }

  restrictions {
    geo_restriction {
      restriction_type = "none"
    }
  }

  viewer_certificate {
    cloudfront_default_certificate = true
  }

  tags = merge(var.tags, var.issuer.tags, { Name = var.issuer.bucket })

  # Tokens name its domain, and another distribution has another one.
  lifecycle {
    prevent_destroy = true
  }
}
