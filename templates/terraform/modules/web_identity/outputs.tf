output "issuer" {
  description = "The issuer that tokens name, and the bucket with its two documents."
  value       = { url = var.issuer.url, bucket = aws_s3_bucket.issuer.bucket }
}

output "roles" {
  description = "By namespace: the ARN of the role of its pods."
  value       = { for namespace, role in aws_iam_role.this : namespace => role.arn }
}
