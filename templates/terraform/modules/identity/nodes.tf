# A node finds out from its tags what it is, and reports to its group when it is drained.

locals {
  auto_scaling_groups = "arn:${local.partition}:autoscaling:*:${local.account}:autoScalingGroup:*:autoScalingGroupName/*"
}

data "aws_iam_policy_document" "node" {
  # EC2 has no permissions by resource for what only describes: the region is all that can be said.
  statement {
    sid = "LookUp"
    actions = [
      "ec2:DescribeInstances",
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
    sid = "ReportDrained"
    actions = [
      "autoscaling:CompleteLifecycleAction",
      "autoscaling:RecordLifecycleActionHeartbeat",
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

resource "aws_iam_role_policy" "node" {
  name   = "node"
  role   = aws_iam_role.this["node"].name
  policy = data.aws_iam_policy_document.node.json
}

data "aws_iam_policy_document" "images" {
  # A token is for the whole registry: this action knows no resource.
  statement {
    sid       = "SignIn"
    actions   = ["ecr:GetAuthorizationToken"]
    resources = ["*"]
  }

  statement {
    sid = "PullImages"
    actions = [
      "ecr:BatchCheckLayerAvailability",
      "ecr:BatchGetImage",
      "ecr:GetDownloadUrlForLayer",
    ]
    resources = [
      for name in var.image_repositories : "arn:${local.partition}:ecr:*:${local.account}:repository/${name}"
    ]

    condition {
      test     = "StringEquals"
      variable = "aws:RequestedRegion"
      values   = var.regions
    }
  }
}

resource "aws_iam_role_policy" "images" {
  for_each = length(var.image_repositories) > 0 ? toset(["node", "control-plane"]) : toset([])

  name   = "pull-images"
  role   = aws_iam_role.this[each.key].name
  policy = data.aws_iam_policy_document.images.json
}
