# Four roles, one for each kind of machine. What a role may do is in a file by topic: secrets, storage, nodes,
# control_plane. Policies are inline: they belong to one role, and go with it.
#
# Regions are a condition, in ARNs there is a wildcard: an ARN a region would take the policies over the 10,240
# characters that a role's may have together (IAM User Guide, "IAM and AWS STS quotas").

locals {
  roles = {
    node           = "Kubernetes nodes"
    control-plane  = "Kubernetes masters, which also scale the node pools"
    ssh-node       = "Machines that people log in to"
    access-gateway = "VPN end points"
  }
}

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

locals {
  account   = data.aws_caller_identity.current.account_id
  partition = data.aws_partition.current.partition
}

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.${data.aws_partition.current.dns_suffix}"]
    }
  }
}

resource "aws_iam_role" "this" {
  for_each = local.roles

  name               = "${var.name}-${each.key}"
  description        = "${each.value}."
  assume_role_policy = data.aws_iam_policy_document.assume.json

  tags = merge(var.tags, { Name = "${var.name}-${each.key}", role = each.key })
}

resource "aws_iam_instance_profile" "this" {
  for_each = local.roles

  name = aws_iam_role.this[each.key].name
  role = aws_iam_role.this[each.key].name

  tags = merge(var.tags, { Name = "${var.name}-${each.key}", role = each.key })
}

# A policy that somebody else gives a role is found, and taken away by the next apply.
locals {
  policies = concat(
    [aws_iam_role_policy.node, aws_iam_role_policy.autoscaler, aws_iam_role_policy.tokens],
    values(aws_iam_role_policy.secrets),
    values(aws_iam_role_policy.images),
    values(aws_iam_role_policy.file_systems),
    values(aws_iam_role_policy.buckets),
    values(aws_iam_role_policy.keys),
    values(aws_iam_role_policy.snapshots),
    values(aws_iam_role_policy.audit_log),
    values(aws_iam_role_policy.volumes),
  )
}

resource "aws_iam_role_policies_exclusive" "this" {
  for_each = local.roles

  role_name    = aws_iam_role.this[each.key].name
  policy_names = [for policy in local.policies : policy.name if policy.role == aws_iam_role.this[each.key].name]
}

resource "aws_iam_role_policy_attachments_exclusive" "this" {
  for_each = local.roles

  role_name   = aws_iam_role.this[each.key].name
  policy_arns = []
}
