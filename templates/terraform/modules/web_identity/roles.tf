# A role a namespace. Anyone who may create a token of the namespace's service account "work", or start a pod, gets what the
# namespace may do, and nothing of another. Mountpoint for S3 shows tokens of the pod whose volume it mounts, and most
# pods are of the account "default". MLflow's namespace has one too, for its own account: people reach what is in its
# folder through MLflow alone, which asks who they are.

data "aws_partition" "current" {}

locals {
  arn   = "arn:${data.aws_partition.current.partition}:s3:::"
  store = var.store == null ? "" : "${local.arn}${var.store.bucket}"

  readable = [for volume in var.volumes : "${local.arn}${volume.bucket}"]
  writable = [for volume in var.volumes : "${local.arn}${volume.bucket}" if !volume.read_only]
  keys     = sort(distinct(compact([for volume in var.volumes : volume.kms_key])))
  tracking = var.store == null ? {} : { for name in var.tracking[*] : "mlflow" => name }
  roles    = merge(var.roles, local.tracking)

  # Code is written once: its name is its digest. A run's folder is its own to clear.
  rights = merge(
    { for name in keys(var.roles) : name => {
      accounts = ["default", "work"]
      written  = ["code/${name}", "runs/${name}"]
      cleared  = ["runs/${name}"]
    } },
    { for name in keys(local.tracking) : name => { accounts = ["mlflow"], written = ["mlflow"], cleared = ["mlflow"] } },
  )
  stored   = var.store == null ? {} : local.rights
  mounting = length(var.volumes) == 0 ? {} : var.roles
}

data "aws_iam_policy_document" "assume" {
  for_each = local.roles

  dynamic "statement" {
    for_each = local.issuers

    content {
      actions = ["sts:AssumeRoleWithWebIdentity"]

      principals {
        type        = "Federated"
        identifiers = [aws_iam_openid_connect_provider.this[statement.key].arn]
      }

      condition {
        test     = "StringEquals"
        variable = "${trimprefix(statement.value, "https://")}:aud"
        values   = ["sts.amazonaws.com"]
      }

      condition {
        test     = "StringEquals"
        variable = "${trimprefix(statement.value, "https://")}:sub"
        values   = [for account in local.rights[each.key].accounts : "system:serviceaccount:${each.key}:${account}"]
      }
    }
  }
}

resource "aws_iam_role" "this" {
  for_each = local.roles

  name                 = each.value
  description          = "Jobs and people of the namespace ${each.key}."
  assume_role_policy   = data.aws_iam_policy_document.assume[each.key].json
  max_session_duration = 3600

  tags = merge(var.tags, { Name = each.value, role = "work" })
}

data "aws_iam_policy_document" "store" {
  for_each = local.stored

  statement {
    sid       = "ListOwnFolders"
    actions   = ["s3:ListBucket"]
    resources = [local.store]

    condition {
      test     = "StringLike"
      variable = "s3:prefix"
      values   = [for folder in each.value.written : "${folder}/*"]
    }
  }

  statement {
    sid = "UseOwnFolders"
    actions = [
      "s3:AbortMultipartUpload",
      "s3:GetObject",
      "s3:ListMultipartUploadParts",
      "s3:PutObject",
    ]
    resources = [for folder in each.value.written : "${local.store}/${folder}/*"]
  }

  statement {
    sid       = "ClearOwnRuns"
    actions   = ["s3:DeleteObject"]
    resources = [for folder in each.value.cleared : "${local.store}/${folder}/*"]
  }

  dynamic "statement" {
    for_each = var.store.kms_key[*]

    content {
      sid       = "UseKeyOfStore"
      actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
      resources = [statement.value]

      condition {
        test     = "StringLike"
        variable = "kms:ViaService"
        values   = ["s3.*.${data.aws_partition.current.dns_suffix}"]
      }
    }
  }
}

resource "aws_iam_role_policy" "store" {
  for_each = local.stored

  name   = "use-own-folders"
  role   = aws_iam_role.this[each.key].name
  policy = data.aws_iam_policy_document.store[each.key].json
}

# Mountpoint for S3 lists, reads and writes below its prefix (Mountpoint, "Configuration", IAM permissions).
data "aws_iam_policy_document" "volumes" {
  for_each = local.mounting

  statement {
    sid       = "ListOwnFolders"
    actions   = ["s3:ListBucket"]
    resources = local.readable

    condition {
      test     = "StringLike"
      variable = "s3:prefix"
      values   = ["${each.key}/*"]
    }
  }

  statement {
    sid       = "ReadOwnFolders"
    actions   = ["s3:GetObject"]
    resources = [for arn in local.readable : "${arn}/${each.key}/*"]
  }

  dynamic "statement" {
    for_each = length(local.writable) > 0 ? ["write"] : []

    content {
      sid       = "WriteOwnFolders"
      actions   = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:PutObject"]
      resources = [for arn in local.writable : "${arn}/${each.key}/*"]
    }
  }

  dynamic "statement" {
    for_each = length(local.keys) > 0 ? ["use"] : []

    content {
      sid       = "UseKeysOfBuckets"
      actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
      resources = local.keys

      condition {
        test     = "StringLike"
        variable = "kms:ViaService"
        values   = ["s3.*.${data.aws_partition.current.dns_suffix}"]
      }
    }
  }
}

resource "aws_iam_role_policy" "volumes" {
  for_each = local.mounting

  name   = "use-volumes"
  role   = aws_iam_role.this[each.key].name
  policy = data.aws_iam_policy_document.volumes[each.key].json
}

# A policy that somebody else gives a role is found, and taken away by the next apply.
resource "aws_iam_role_policies_exclusive" "this" {
  for_each = local.roles

  role_name = aws_iam_role.this[each.key].name
  policy_names = [
    for policies in [aws_iam_role_policy.store, aws_iam_role_policy.volumes] : policies[each.key].name
    if contains(keys(policies), each.key)
  ]
}

resource "aws_iam_role_policy_attachments_exclusive" "this" {
  for_each = local.roles

  role_name   = aws_iam_role.this[each.key].name
  policy_arns = []
}
