# Masters scale the node pools, hand out the nodes' join tokens, and keep snapshots of etcd.

data "aws_iam_policy_document" "autoscaler" {
  # Neither service has permissions by resource for what only describes: the region is all that can be said.
  statement {
    sid = "LookUp"
    actions = [
      "autoscaling:DescribeAutoScalingGroups",
      "autoscaling:DescribeAutoScalingInstances",
      "autoscaling:DescribeLaunchConfigurations",
      "autoscaling:DescribeLifecycleHooks",
      "autoscaling:DescribeScalingActivities",
      "autoscaling:DescribeTags",
      "autoscaling:DescribeWarmPool",
      "ec2:DescribeAvailabilityZones",
      "ec2:DescribeCapacityReservations",
      "ec2:DescribeImages",
      "ec2:DescribeInstanceTypeOfferings",
      "ec2:DescribeInstanceTypes",
      "ec2:DescribeInstances",
      "ec2:DescribeLaunchTemplateVersions",
      "ec2:DescribeSpotInstanceRequests",
      "ec2:DescribeSpotPriceHistory",
      "ec2:DescribeTags",
    ]
    resources = ["*"]

    condition {
      test     = "StringEquals"
      variable = "aws:RequestedRegion"
      values   = var.regions
    }
  }

  statement {
    sid = "ScaleOwnGroups"
    actions = [
      "autoscaling:CompleteLifecycleAction",
      "autoscaling:RecordLifecycleActionHeartbeat",
      "autoscaling:SetDesiredCapacity",
      "autoscaling:TerminateInstanceInAutoScalingGroup",
    ]
    resources = [local.auto_scaling_groups]

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

resource "aws_iam_role_policy" "autoscaler" {
  name   = "scale-own-groups"
  role   = aws_iam_role.this["control-plane"].name
  policy = data.aws_iam_policy_document.autoscaler.json
}

data "aws_iam_policy_document" "tokens" {
  statement {
    sid       = "WriteOwnSecretsAndTokens"
    actions   = ["ssm:PutParameter"]
    resources = [local.secrets["control-plane"], local.secrets["node"]]

    condition {
      test     = "StringEquals"
      variable = "aws:RequestedRegion"
      values   = var.regions
    }
  }
}

resource "aws_iam_role_policy" "tokens" {
  name   = "write-own-secrets-and-tokens"
  role   = aws_iam_role.this["control-plane"].name
  policy = data.aws_iam_policy_document.tokens.json
}

locals {
  snapshots = { for one in var.snapshots[*] : "snapshots" => one }
}

data "aws_iam_policy_document" "snapshots" {
  for_each = local.snapshots

  statement {
    sid       = "ListSnapshots"
    actions   = ["s3:ListBucket"]
    resources = ["arn:${local.partition}:s3:::${each.value.bucket}"]

    condition {
      test     = "StringLike"
      variable = "s3:prefix"
      values   = ["${each.value.prefix}*"]
    }
  }

  # Old ones are the bucket's life cycle's to delete, not a master's that was broken into.
  statement {
    sid = "KeepSnapshots"
    actions = [
      "s3:AbortMultipartUpload",
      "s3:GetObject",
      "s3:PutObject",
    ]
    resources = ["arn:${local.partition}:s3:::${each.value.bucket}/${each.value.prefix}*"]
  }
}

resource "aws_iam_role_policy" "snapshots" {
  for_each = local.snapshots

  name   = "keep-snapshots"
  role   = aws_iam_role.this["control-plane"].name
  policy = data.aws_iam_policy_document.snapshots[each.key].json
}

locals {
  audit_log = { for one in var.audit_log[*] : "audit-log" => one }
}

# A master that was broken into can neither read nor delete what others wrote. What it overwrites stays as an old
# version.
data "aws_iam_policy_document" "audit_log" {
  for_each = local.audit_log

  statement {
    sid       = "WriteAuditLog"
    actions   = ["s3:PutObject"]
    resources = ["arn:${local.partition}:s3:::${each.value.bucket}/${each.value.prefix}*"]
  }
}

resource "aws_iam_role_policy" "audit_log" {
  for_each = local.audit_log

  name   = "write-audit-log"
  role   = aws_iam_role.this["control-plane"].name
  policy = data.aws_iam_policy_document.audit_log[each.key].json
}

locals {
  volumes = { for one in var.volumes_region[*] : "volumes" => one }
}

# A volume is an access point. The driver tags its own, and nobody else's can be taken away.
data "aws_iam_policy_document" "volumes" {
  for_each = local.volumes

  statement {
    sid = "FindOwnFileSystems"
    actions = [
      "elasticfilesystem:DescribeAccessPoints",
      "elasticfilesystem:DescribeFileSystems",
      "elasticfilesystem:DescribeMountTargets",
    ]
    resources = ["arn:${local.partition}:elasticfilesystem:${each.value}:${local.account}:file-system/*"]

    condition {
      test     = "StringEquals"
      variable = "aws:ResourceTag/cluster"
      values   = [var.cluster]
    }
  }

  statement {
    sid = "MakeVolumes"
    actions = [
      "elasticfilesystem:CreateAccessPoint",
      "elasticfilesystem:TagResource",
    ]
    resources = [
      "arn:${local.partition}:elasticfilesystem:${each.value}:${local.account}:file-system/*",
      "arn:${local.partition}:elasticfilesystem:${each.value}:${local.account}:access-point/*",
    ]

    condition {
      test     = "StringEquals"
      variable = "aws:RequestTag/efs.csi.aws.com/cluster"
      values   = ["true"]
    }
  }

  statement {
    sid = "RemoveVolumes"
    actions = [
      "elasticfilesystem:DeleteAccessPoint",
      "elasticfilesystem:DescribeAccessPoints",
    ]
    resources = ["arn:${local.partition}:elasticfilesystem:${each.value}:${local.account}:access-point/*"]

    condition {
      test     = "StringEquals"
      variable = "aws:ResourceTag/efs.csi.aws.com/cluster"
      values   = ["true"]
    }
  }

  # EC2 has no permissions by resource for what only describes.
  statement {
    sid       = "FindZones"
    actions   = ["ec2:DescribeAvailabilityZones"]
    resources = ["*"]

    condition {
      test     = "StringEquals"
      variable = "aws:RequestedRegion"
      values   = [each.value]
    }
  }
}

resource "aws_iam_role_policy" "volumes" {
  for_each = local.volumes

  name   = "make-volumes"
  role   = aws_iam_role.this["control-plane"].name
  policy = data.aws_iam_policy_document.volumes[each.key].json
}
