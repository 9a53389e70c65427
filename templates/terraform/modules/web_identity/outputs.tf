output "issuer" {
  description = "The issuers that tokens may name, by who serves them (s3, cloudfront), and the bucket with their documents."
  value       = { urls = local.issuers, bucket = aws_s3_bucket.issuer.bucket }
}

output "roles" {
  description = "By namespace: the ARN of the role of its pods."
  value       = { for namespace, role in aws_iam_role.this : namespace => role.arn }
}
