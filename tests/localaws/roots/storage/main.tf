# EFS, S3, KMS, SSM.

resource "aws_vpc" "this" {
  cidr_block = "10.40.0.0/16"
}

data "aws_availability_zones" "all" {
  state = "available"
}

data "aws_caller_identity" "this" {}

data "aws_partition" "this" {}

resource "aws_subnet" "this" {
  for_each          = toset(slice(data.aws_availability_zones.all.names, 0, 2))
  vpc_id            = aws_vpc.this.id
  cidr_block        = cidrsubnet(aws_vpc.this.cidr_block, 8, index(data.aws_availability_zones.all.names, each.value))
  availability_zone = each.value
}

resource "aws_security_group" "nfs" {
  name   = "nfs"
  vpc_id = aws_vpc.this.id
}

resource "aws_kms_key" "this" {
  description             = "storage"
  enable_key_rotation     = true
  deletion_window_in_days = 7
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "Root"
      Effect    = "Allow"
      Principal = { AWS = "arn:${data.aws_partition.this.partition}:iam::${data.aws_caller_identity.this.account_id}:root" }
      Action    = "kms:*"
      Resource  = "*"
    }]
  })
  tags = { Name = "storage" }
}

resource "aws_kms_grant" "this" {
  name              = "auto-scaling"
  key_id            = aws_kms_key.this.arn
  grantee_principal = "arn:${data.aws_partition.this.partition}:iam::${data.aws_caller_identity.this.account_id}:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
  operations        = ["CreateGrant", "Decrypt", "DescribeKey", "GenerateDataKeyWithoutPlaintext"]
}

resource "aws_kms_alias" "this" {
  name          = "alias/storage"
  target_key_id = aws_kms_key.this.key_id
}

resource "aws_efs_file_system" "this" {
  creation_token                  = "home"
  encrypted                       = true
  kms_key_id                      = aws_kms_key.this.arn
  performance_mode                = "generalPurpose"
  throughput_mode                 = "provisioned"
  provisioned_throughput_in_mibps = 64
  lifecycle_policy {
    transition_to_ia = "AFTER_30_DAYS"
  }
  lifecycle_policy {
    transition_to_primary_storage_class = "AFTER_1_ACCESS"
  }
  tags = { Name = "home" }
}

resource "aws_efs_file_system" "elastic" {
  creation_token  = "scratch"
  encrypted       = true
  throughput_mode = "elastic"
  tags            = { Name = "scratch" }
}

resource "aws_efs_mount_target" "this" {
  for_each        = aws_subnet.this
  file_system_id  = aws_efs_file_system.this.id
  subnet_id       = each.value.id
  security_groups = [aws_security_group.nfs.id]
}

resource "aws_efs_access_point" "this" {
  file_system_id = aws_efs_file_system.this.id
  posix_user {
    uid = 1000
    gid = 1000
  }
  root_directory {
    path = "/home"
    creation_info {
      owner_uid   = 1000
      owner_gid   = 1000
      permissions = "0755"
    }
  }
  tags = { Name = "home" }
}

resource "aws_efs_backup_policy" "this" {
  file_system_id = aws_efs_file_system.this.id
  backup_policy {
    status = "ENABLED"
  }
}

resource "aws_efs_file_system_policy" "this" {
  file_system_id = aws_efs_file_system.this.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "Tls"
      Effect    = "Deny"
      Principal = { AWS = "*" }
      Action    = "*"
      Resource  = aws_efs_file_system.this.arn
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }]
  })
}

resource "aws_s3_bucket" "this" {
  for_each = toset(["data", "logs"])
  bucket   = "causeway-storage-${each.key}"
  # the log of each access is an object
  force_destroy = each.key == "logs"
  tags          = { Name = each.key }
}

resource "aws_s3_bucket_versioning" "this" {
  for_each = aws_s3_bucket.this
  bucket   = each.value.id
  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "data" {
  bucket = aws_s3_bucket.this["data"].id
  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm     = "aws:kms"
      kms_master_key_id = aws_kms_key.this.arn
    }
    bucket_key_enabled = true
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "logs" {
  bucket = aws_s3_bucket.this["logs"].id
  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

resource "aws_s3_bucket_public_access_block" "this" {
  for_each                = aws_s3_bucket.this
  bucket                  = each.value.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "this" {
  for_each = aws_s3_bucket.this
  bucket   = each.value.id
  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "this" {
  bucket = aws_s3_bucket_versioning.this["data"].bucket
  rule {
    id     = "old"
    status = "Enabled"
    filter {}
    noncurrent_version_expiration {
      noncurrent_days = 30
    }
    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }
  }
  rule {
    id     = "scratch"
    status = "Enabled"
    filter {
      prefix = "scratch/"
    }
    expiration {
      days = 14
    }
    transition {
      days          = 7
      storage_class = "GLACIER_IR"
    }
  }
}

resource "aws_s3_bucket_policy" "this" {
  bucket = aws_s3_bucket.this["data"].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "Tls"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:*"
      Resource  = [aws_s3_bucket.this["data"].arn, "${aws_s3_bucket.this["data"].arn}/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }]
  })
  depends_on = [aws_s3_bucket_public_access_block.this]
}

resource "aws_s3_bucket_policy" "logs" {
  bucket = aws_s3_bucket.this["logs"].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "Log"
      Effect    = "Allow"
      Principal = { Service = "logging.s3.amazonaws.com" }
      Action    = "s3:PutObject"
      Resource  = "${aws_s3_bucket.this["logs"].arn}/*"
    }]
  })
}

resource "aws_s3_bucket_logging" "this" {
  bucket        = aws_s3_bucket.this["data"].id
  target_bucket = aws_s3_bucket.this["logs"].id
  target_prefix = "data/"
  depends_on    = [aws_s3_bucket_policy.logs]
}

resource "aws_ssm_parameter" "plain" {
  name        = "/causeway/plain"
  description = "A value"
  type        = "String"
  value       = "quotes \" and $${dollar}"
  tags        = { Name = "plain" }
}

resource "aws_ssm_parameter" "secret" {
  name   = "/causeway/secret"
  type   = "SecureString"
  key_id = aws_kms_key.this.arn
  value  = "hidden"
}

# -- RDS ---------------------------------------------------------------------------------------------------

resource "aws_db_subnet_group" "this" {
  name       = "mlflow"
  subnet_ids = [for subnet in aws_subnet.this : subnet.id]
  tags       = { Name = "mlflow" }
}

resource "aws_db_parameter_group" "this" {
  name   = "mlflow-postgres17"
  family = "postgres17"

  parameter {
    name  = "rds.force_ssl"
    value = "1"
  }

  tags = { Name = "mlflow-postgres17" }
}

resource "aws_db_instance" "this" {
  identifier                      = "mlflow"
  engine                          = "postgres"
  engine_version                  = "17"
  instance_class                  = "db.t4g.small"
  storage_type                    = "gp3"
  allocated_storage               = 20
  max_allocated_storage           = 100
  storage_encrypted               = true
  kms_key_id                      = aws_kms_key.this.arn
  db_name                         = "mlflow"
  username                        = "mlflow"
  password                        = "not-a-real-one"
  db_subnet_group_name            = aws_db_subnet_group.this.name
  vpc_security_group_ids          = [aws_security_group.nfs.id]
  parameter_group_name            = aws_db_parameter_group.this.name
  multi_az                        = true
  backup_retention_period         = 14
  backup_window                   = "01:00-02:00"
  maintenance_window              = "sun:04:00-sun:05:00"
  apply_immediately               = true
  copy_tags_to_snapshot           = true
  enabled_cloudwatch_logs_exports = ["postgresql", "upgrade"]
  skip_final_snapshot             = true
  delete_automated_backups        = false
  tags                            = { Name = "mlflow" }
}
