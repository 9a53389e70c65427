# Nodes and SSH nodes mount the file systems, and use the buckets. Nobody may delete a version of an object: what was
# overwritten or deleted by mistake comes back, until the bucket's life cycle lets it go.

locals {
  # Whether root is root on a file system: where home directories are made, at a person's first log-in.
  file_system_rights = {
    node     = ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"]
    ssh-node = ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite", "elasticfilesystem:ClientRootAccess"]
  }

  readable = [for bucket in var.buckets : "arn:${local.partition}:s3:::${bucket.bucket}"]
  writable = [for bucket in var.buckets : "arn:${local.partition}:s3:::${bucket.bucket}" if !bucket.read_only]
}

data "aws_iam_policy_document" "file_systems" {
  for_each = local.file_system_rights

  statement {
    sid       = "MountOwnFileSystems"
    actions   = concat(each.value, ["elasticfilesystem:DescribeMountTargets"])
    resources = [for region in var.regions : "arn:${local.partition}:elasticfilesystem:${region}:${local.account}:file-system/*"]

    condition {
      test     = "StringEquals"
      variable = "aws:ResourceTag/cluster"
      values   = [var.cluster]
    }
  }
}

resource "aws_iam_role_policy" "file_systems" {
  for_each = local.file_system_rights

  name   = "mount-own-file-systems"
  role   = aws_iam_role.this[each.key].name
  policy = data.aws_iam_policy_document.file_systems[each.key].json
}

data "aws_iam_policy_document" "buckets" {
  statement {
    sid = "ListBuckets"
    actions = [
      "s3:GetBucketLocation",
      "s3:ListBucket",
    ]
    resources = local.readable
  }

  statement {
    sid       = "ReadObjects"
    actions   = ["s3:GetObject"]
    resources = [for arn in local.readable : "${arn}/*"]
  }

  dynamic "statement" {
    for_each = length(local.writable) > 0 ? ["write"] : []

    content {
      sid       = "ListUploads"
      actions   = ["s3:ListBucketMultipartUploads"]
      resources = local.writable
    }
  }

  dynamic "statement" {
    for_each = length(local.writable) > 0 ? ["write"] : []

    content {
      sid = "WriteObjects"
      actions = [
        "s3:AbortMultipartUpload",
        "s3:DeleteObject",
        "s3:ListMultipartUploadParts",
        "s3:PutObject",
      ]
      resources = [for arn in local.writable : "${arn}/*"]
    }
  }
}

resource "aws_iam_role_policy" "buckets" {
  for_each = length(var.buckets) > 0 ? toset(["node", "ssh-node"]) : toset([])

  name   = "use-buckets"
  role   = aws_iam_role.this[each.key].name
  policy = data.aws_iam_policy_document.buckets.json
}
