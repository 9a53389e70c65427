# Nodes and SSH nodes find the file systems, and use the buckets. Nobody may delete a version of an object: what was
# overwritten or deleted by mistake comes back, until the bucket's life cycle lets it go.
#
# Who may mount is said by the file systems' own policies (module storage): EFS looks at no tags when a client
# mounts (EFS User Guide, "EFS condition keys for clients"), so that a role could not be held to its own cluster.

locals {
  mounting = toset(["node", "ssh-node"])

  readable = [for bucket in var.buckets : "arn:${local.partition}:s3:::${bucket.bucket}"]
  writable = [for bucket in var.buckets : "arn:${local.partition}:s3:::${bucket.bucket}" if !bucket.read_only]
}

data "aws_iam_policy_document" "file_systems" {
  statement {
    sid       = "FindOwnFileSystems"
    actions   = ["elasticfilesystem:DescribeMountTargets"]
    resources = ["arn:${local.partition}:elasticfilesystem:*:${local.account}:file-system/*"]

    condition {
      test     = "StringEquals"
      variable = "aws:ResourceTag/cluster"
      values   = [var.cluster]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:RequestedRegion"
      values   = var.regions
    }
  }
}

resource "aws_iam_role_policy" "file_systems" {
  for_each = local.mounting

  name   = "find-own-file-systems"
  role   = aws_iam_role.this[each.key].name
  policy = data.aws_iam_policy_document.file_systems.json
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

# Only through S3: volumes are EC2's to decrypt, and file systems EFS's.
data "aws_iam_policy_document" "keys" {
  statement {
    sid = "UseKeysOfBuckets"
    actions = [
      "kms:Decrypt",
      "kms:GenerateDataKey",
    ]
    resources = var.kms_keys

    condition {
      test     = "StringEquals"
      variable = "kms:ViaService"
      values   = [for region in var.regions : "s3.${region}.${data.aws_partition.current.dns_suffix}"]
    }
  }
}

resource "aws_iam_role_policy" "keys" {
  for_each = length(var.kms_keys) > 0 ? toset(["node", "ssh-node", "control-plane"]) : toset([])

  name   = "use-keys-of-buckets"
  role   = aws_iam_role.this[each.key].name
  policy = data.aws_iam_policy_document.keys.json
}
