# Auto Scaling starts machines in the name of its service-linked role, which may use no customer-managed key unless it
# is granted (EC2 Auto Scaling User Guide, "Required AWS KMS key policy for use with encrypted volumes").

locals {
  granted = { for key in var.kms_key[*] : "key" => key if length(var.node_pools) > 0 }
}

data "aws_caller_identity" "current" {
  for_each = local.granted
}

data "aws_partition" "current" {
  for_each = local.granted
}

resource "aws_kms_grant" "auto_scaling" {
  for_each = local.granted

  name   = "${var.name}-auto-scaling"
  key_id = each.value

  grantee_principal = join("", [
    "arn:${data.aws_partition.current[each.key].partition}:iam::${data.aws_caller_identity.current[each.key].account_id}",
    ":role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling",
  ])

  operations = [
    "CreateGrant",
    "Decrypt",
    "DescribeKey",
    "Encrypt",
    "GenerateDataKey",
    "GenerateDataKeyWithoutPlaintext",
    "ReEncryptFrom",
    "ReEncryptTo",
  ]
}
