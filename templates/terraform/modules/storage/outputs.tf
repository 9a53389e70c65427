output "file_systems" {
  description = "By name: id, ARN and DNS name, and the ids of its access points, once it can be mounted in every zone."
  value = {
    for name, file_system in aws_efs_file_system.this : name => {
      id       = file_system.id
      arn      = file_system.arn
      dns_name = file_system.dns_name
      access_points = {
        for key, settings in local.access_points : settings.point => aws_efs_access_point.this[key].id if settings.file_system == name
      }
    }
  }

  depends_on = [aws_efs_mount_target.this]
}

output "buckets" {
  description = "By name: ARN, global name and regional domain name."
  value = {
    for name, bucket in aws_s3_bucket.this : name => {
      arn    = bucket.arn
      name   = bucket.bucket
      domain = bucket.bucket_regional_domain_name
    }
  }

  depends_on = [aws_s3_bucket_policy.this]
}
