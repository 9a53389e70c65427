# A role a namespace. Whoever may create a token of the namespace's service account "work", or start a pod with it, gets
# what the namespace may do, and nothing of another.

data "aws_partition" "current" {}

locals {
  issuer = trimprefix(var.issuer.url, "https://")
  store  = "arn:${data.aws_partition.current.partition}:s3:::${var.bucket}"
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
      values   = ["system:serviceaccount:${each.key}:work"]
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
  for_each = var.roles

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
    for_each = var.kms_key[*]

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
  for_each = var.roles

  name   = "use-own-folders"
  role   = aws_iam_role.this[each.key].name
  policy = data.aws_iam_policy_document.store[each.key].json
}

# A policy that somebody else gives a role is found, and taken away by the next apply.
resource "aws_iam_role_policies_exclusive" "this" {
  for_each = var.roles

  role_name    = aws_iam_role.this[each.key].name
  policy_names = [aws_iam_role_policy.store[each.key].name]
}

resource "aws_iam_role_policy_attachments_exclusive" "this" {
  for_each = var.roles

  role_name   = aws_iam_role.this[each.key].name
  policy_arns = []
}
