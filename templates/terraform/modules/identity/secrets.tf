# Each role reads the secrets that are filed under its own name. Names are known, so nothing needs to be listed.
# They are encrypted with the account's own key for Parameter Store (alias/aws/ssm), whose policy lets in everyone
# who may read the parameter: no right to a KMS key is needed.

locals {
  secrets = {
    for role in keys(local.roles) : role => "arn:${local.partition}:ssm:*:${local.account}:parameter${var.secrets_prefix}/${role}/*"
  }
}

data "aws_iam_policy_document" "secrets" {
  for_each = local.roles

  statement {
    sid = "ReadOwnSecrets"
    actions = [
      "ssm:GetParameter",
      "ssm:GetParameters",
    ]
    resources = [local.secrets[each.key]]

    condition {
      test     = "StringEquals"
      variable = "aws:RequestedRegion"
      values   = var.regions
    }
  }
}

resource "aws_iam_role_policy" "secrets" {
  for_each = local.roles

  name   = "read-own-secrets"
  role   = aws_iam_role.this[each.key].name
  policy = data.aws_iam_policy_document.secrets[each.key].json
}
