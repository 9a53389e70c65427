# PostgreSQL for MLflow: in private subnets, encrypted, over TLS alone, and reached from the groups that are named.

locals {
  port = 5432
}

resource "aws_db_subnet_group" "this" {
  name        = var.name
  description = "Private subnets of the database ${var.name}."
  subnet_ids  = var.subnet_ids

  tags = merge(var.tags, { Name = var.name })
}

resource "aws_security_group" "this" {
  name        = "${var.name}-database"
  description = "The database of MLflow: PostgreSQL from nodes"
  vpc_id      = var.vpc_id

  tags = merge(var.tags, { Name = "${var.name}-database" })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_ingress_rule" "this" {
  for_each = var.client_security_groups

  security_group_id            = aws_security_group.this.id
  description                  = "PostgreSQL from ${each.key}"
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = local.port
  to_port                      = local.port

  tags = merge(var.tags, { Name = "${var.name}-${each.key}" })
}

resource "aws_db_parameter_group" "this" {
  name        = "${var.name}-postgres${var.major_version}"
  description = "PostgreSQL ${var.major_version} of the database ${var.name}."
  family      = "postgres${var.major_version}"

  parameter {
    name  = "rds.force_ssl"
    value = "1"
  }

  # Statements that take longer than a second are logged.
  parameter {
    name  = "log_min_duration_statement"
    value = "1000"
  }

  tags = merge(var.tags, { Name = "${var.name}-postgres${var.major_version}" })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_db_instance" "this" {
  #checkov:skip=CKV_AWS_118:Enhanced monitoring needs a role and costs by the sample; the instance's own metrics tell what a database of this size needs.
  #checkov:skip=CKV_AWS_157:A second zone is the spec's to say: multi_az.
  #checkov:skip=CKV_AWS_161:IAM tokens last 15 minutes, and MLflow keeps one address of its database for as long as it runs.
  #checkov:skip=CKV_AWS_353:Small classes have no Performance Insights.
  #checkov:skip=CKV_AWS_354:Small classes have no Performance Insights.
  #checkov:skip=CKV2_AWS_30:Statements that take longer than a second are logged, not all of them: they are metrics by the thousand.
  identifier     = var.name
  engine         = "postgres"
  engine_version = var.major_version
  instance_class = var.instance_class

  storage_type          = "gp3"
  allocated_storage     = var.storage_gib
  max_allocated_storage = var.storage_limit_gib
  storage_encrypted     = true
  kms_key_id            = var.kms_key

  db_name  = "mlflow"
  username = "mlflow"
  password = var.password

  db_subnet_group_name   = aws_db_subnet_group.this.name
  vpc_security_group_ids = [aws_security_group.this.id]
  parameter_group_name   = aws_db_parameter_group.this.name
  publicly_accessible    = false
  multi_az               = var.multi_az
  port                   = local.port

  backup_retention_period    = var.backup_days
  backup_window              = "01:00-02:00"
  maintenance_window         = "sun:04:00-sun:05:00"
  auto_minor_version_upgrade = true
  apply_immediately          = true
  copy_tags_to_snapshot      = true

  enabled_cloudwatch_logs_exports = ["postgresql", "upgrade"]

  # `invoke apply` and `invoke destroy` turn it off, once a person has named the database. Backups stay for as many days
  # as they would have.
  deletion_protection      = true
  skip_final_snapshot      = true
  delete_automated_backups = false

  tags = merge(var.tags, { Name = var.name })

  lifecycle {
    prevent_destroy = true
  }
}
