resource "aws_efs_file_system" "this" {
  #checkov:skip=CKV_AWS_184:Encrypted with the account's key for EFS, unless a key is given.
  for_each = var.file_systems

  # A token has at most 64 characters, a name tag 256.
  creation_token   = length(each.value.name) <= 64 ? each.value.name : sha256(each.value.name)
  encrypted        = true
  kms_key_id       = var.kms_key
  performance_mode = each.value.performance
  throughput_mode  = each.value.throughput

  # A file that is read again comes back, so that a data set in use is as fast as ever.
  dynamic "lifecycle_policy" {
    for_each = each.value.archive_after_days == null ? [] : [
      { ia = each.value.archive_after_days == 1 ? "AFTER_1_DAY" : "AFTER_${each.value.archive_after_days}_DAYS", back = null },
      { ia = null, back = "AFTER_1_ACCESS" },
    ]

    content {
      transition_to_ia                    = lifecycle_policy.value.ia
      transition_to_primary_storage_class = lifecycle_policy.value.back
    }
  }

  tags = merge(var.tags, each.value.tags, { Name = each.value.name })

  lifecycle {
    prevent_destroy = true

    precondition {
      condition     = length(var.security_group_ids) > 0
      error_message = "security_group_ids: mount targets without a group of their own would get the VPC's default one, which admits nothing."
    }

    precondition {
      condition     = length(var.client_roles) > 0
      error_message = "client_roles: a file system that no machine may mount is of no use."
    }
  }
}

locals {
  mount_targets = merge([
    for name, file_system in var.file_systems : {
      for zone, subnet_id in file_system.subnet_ids : "${name} ${zone}" => { file_system = name, subnet_id = subnet_id }
    }
  ]...)

  access_points = merge([
    for name, file_system in var.file_systems : {
      for point, settings in file_system.access_points : "${name} ${point}" => merge(settings, { file_system = name, point = point })
    }
  ]...)
}

resource "aws_efs_mount_target" "this" {
  for_each = local.mount_targets

  file_system_id  = aws_efs_file_system.this[each.value.file_system].id
  subnet_id       = each.value.subnet_id
  security_groups = var.security_group_ids
}

resource "aws_efs_access_point" "this" {
  for_each = local.access_points

  file_system_id = aws_efs_file_system.this[each.value.file_system].id

  # All access maps to the directory's owner. Root as owner maps nobody: all users keep their ids, as in
  # a directory of homes.
  dynamic "posix_user" {
    for_each = each.value.uid == 0 ? [] : [each.value]

    content {
      uid = posix_user.value.uid
      gid = posix_user.value.gid
    }
  }

  root_directory {
    path = each.value.path

    creation_info {
      owner_uid   = each.value.uid
      owner_gid   = each.value.gid
      permissions = each.value.mode
    }
  }

  tags = merge(var.tags, var.file_systems[each.value.file_system].tags, {
    Name = "${var.file_systems[each.value.file_system].name}-${each.value.point}"
  })
}

resource "aws_efs_backup_policy" "this" {
  for_each = { for name, file_system in var.file_systems : name => file_system if file_system.backup }

  file_system_id = aws_efs_file_system.this[each.key].id

  backup_policy {
    status = "ENABLED"
  }
}

# EFS believes a client's word on whose files it asks for, so that it must be a machine of ours: one that says by its
# role who it is, over TLS. A pod has no role, and a program in it could give any number for its own. Root is a matter
# of further roles.
data "aws_iam_policy_document" "file_system" {
  for_each = var.file_systems

  statement {
    sid = "MountByMachines"
    actions = [
      "elasticfilesystem:ClientMount",
      "elasticfilesystem:ClientWrite",
    ]
    resources = [aws_efs_file_system.this[each.key].arn]

    principals {
      type        = "AWS"
      identifiers = var.client_roles
    }

    condition {
      test     = "Bool"
      variable = "elasticfilesystem:AccessedViaMountTarget"
      values   = ["true"]
    }
  }

  dynamic "statement" {
    for_each = length(concat(var.root_roles, each.value.root_roles)) > 0 ? ["root"] : []

    content {
      sid       = "RootOfSome"
      actions   = ["elasticfilesystem:ClientRootAccess"]
      resources = [aws_efs_file_system.this[each.key].arn]

      principals {
        type        = "AWS"
        identifiers = concat(var.root_roles, each.value.root_roles)
      }

      condition {
        test     = "Bool"
        variable = "elasticfilesystem:AccessedViaMountTarget"
        values   = ["true"]
      }
    }
  }

  statement {
    sid       = "OnlyOverTls"
    effect    = "Deny"
    actions   = ["*"]
    resources = [aws_efs_file_system.this[each.key].arn]

    principals {
      type        = "AWS"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_efs_file_system_policy" "this" {
  for_each = var.file_systems

  file_system_id = aws_efs_file_system.this[each.key].id
  policy         = data.aws_iam_policy_document.file_system[each.key].json
}
