# With keys of the customer's own, which no applied spec has: EFS, S3, RDS.

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

resource "aws_s3_bucket" "this" {
  bucket = "causeway-storage-data"
}

resource "aws_s3_bucket_server_side_encryption_configuration" "data" {
  bucket = aws_s3_bucket.this.id
  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm     = "aws:kms"
      kms_master_key_id = aws_kms_key.this.arn
    }
    bucket_key_enabled = true
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "this" {
  bucket = aws_s3_bucket.this.id
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
