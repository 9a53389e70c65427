# A role a namespace. Whoever may create a token of the namespace's service account "work", or start a pod, gets what the
# namespace may do, and nothing of another. Mountpoint for S3 shows tokens of the pod whose volume it mounts, and most
# pods are of the account "default".

data "aws_partition" "current" {}

locals {
  issuer = trimprefix(var.issuer.url, "https://")
  arn    = "arn:${data.aws_partition.current.partition}:s3:::"
  store  = var.store == null ? "" : "${local.arn}${var.store.bucket}"

  readable = [for volume in var.volumes : "${local.arn}${volume.bucket}"]
  writable = [for volume in var.volumes : "${local.arn}${volume.bucket}" if !volume.read_only]
  keys     = sort(distinct(compact([for volume in var.volumes : volume.kms_key])))
  stored   = var.store == null ? {} : var.roles
  mounting = length(var.volumes) == 0 ? {} : var.roles
}

data "aws_iam_policy_document" "assume" {
  for_each = var.roles

  statement {
    actions = ["sts:AssumeRoleWithWebIdentity"]

    principals {
      type        = "Federated"
      identifiers = [aws_iam_openid_connect_provider.this.arn]
    }

    condition {
      test     = "StringEquals"
      variable = "${local.issuer}:aud"
      values   = ["sts.amazonaws.com"]
    }

    condition {
      test     = "StringEquals"
      variable = "${local.issuer}:sub"
      values   = ["system:serviceaccount:${each.key}:default", "system:serviceaccount:${each.key}:work"]
    }
  }
}

resource "aws_iam_role" "this" {
  for_each = var.roles

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
      values   = ["code/${each.key}/*", "runs/${each.key}/*"]
    }
  }

  # Code is written once: its name is its digest. A run's folder is its own to clear.
  statement {
    sid = "UseOwnFolders"
    actions = [
      "s3:AbortMultipartUpload",
      "s3:GetObject",
      "s3:ListMultipartUploadParts",
      "s3:PutObject",
    ]
    resources = ["${local.store}/code/${each.key}/*", "${local.store}/runs/${each.key}/*"]
  }

  statement {
    sid       = "ClearOwnRuns"
    actions   = ["s3:DeleteObject"]
    resources = ["${local.store}/runs/${each.key}/*"]
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
  for_each = var.roles

  role_name = aws_iam_role.this[each.key].name
  policy_names = [
    for policies in [aws_iam_role_policy.store, aws_iam_role_policy.volumes] : policies[each.key].name
    if contains(keys(policies), each.key)
  ]
}

resource "aws_iam_role_policy_attachments_exclusive" "this" {
  for_each = var.roles

  role_name   = aws_iam_role.this[each.key].name
  policy_arns = []
}
