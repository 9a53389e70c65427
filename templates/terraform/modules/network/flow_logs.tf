data "aws_region" "current" {}

data "aws_partition" "current" {}

locals {
  logs            = { for logs in var.flow_logs[*] : var.name => logs }
  cloudwatch_logs = { for name, logs in local.logs : name => logs if logs.bucket_arn == null }
}

resource "aws_flow_log" "this" {
  for_each = local.logs

  vpc_id               = aws_vpc.this.id
  traffic_type         = each.value.traffic
  log_destination_type = each.value.bucket_arn == null ? "cloud-watch-logs" : "s3"
  log_destination      = each.value.bucket_arn == null ? aws_cloudwatch_log_group.flow[each.key].arn : each.value.bucket_arn
  iam_role_arn         = each.value.bucket_arn == null ? aws_iam_role.flow[each.key].arn : null

  tags = merge(var.tags, { Name = "${each.key}-flow-logs" })

  # Before its role may write, a flow log begins with an access error.
  depends_on = [aws_iam_role_policy.flow]
}

resource "aws_cloudwatch_log_group" "flow" {
  #checkov:skip=CKV_AWS_158:Addresses and ports are not secrets worth a KMS key; CloudWatch Logs encrypts with its own.
  for_each = local.cloudwatch_logs

  name              = "/causeway/${each.key}/flow-logs"
  retention_in_days = each.value.retention_days

  tags = var.tags
}

data "aws_caller_identity" "current" {}

data "aws_iam_policy_document" "flow_assume" {
  for_each = local.cloudwatch_logs

  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["vpc-flow-logs.amazonaws.com"]
    }

    # For flow logs of this account alone, not for those of another that knows the role's name.
    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [data.aws_caller_identity.current.account_id]
    }
  }
}

data "aws_iam_policy_document" "flow_write" {
  for_each = local.cloudwatch_logs

  statement {
    actions = [
      "logs:CreateLogStream",
      "logs:DescribeLogStreams",
      "logs:PutLogEvents",
    ]
    resources = ["${aws_cloudwatch_log_group.flow[each.key].arn}:*"]
  }

  # Flow logs look their group up before they write (VPC User Guide, "IAM role for publishing flow logs"). They may
  # not make one: it would come back, without an end to what it keeps, after a destroy.
  statement {
    actions = ["logs:DescribeLogGroups"]
    resources = [
      "arn:${data.aws_partition.current.partition}:logs:${data.aws_region.current.name}:${data.aws_caller_identity.current.account_id}:log-group:*",
    ]
  }
}

resource "aws_iam_role" "flow" {
  for_each = local.cloudwatch_logs

  name               = coalesce(each.value.role_name, "${each.key}-flow-logs")
  description        = "Writes the flow logs of ${each.key}."
  assume_role_policy = data.aws_iam_policy_document.flow_assume[each.key].json

  tags = var.tags
}

resource "aws_iam_role_policy" "flow" {
  for_each = local.cloudwatch_logs

  name   = "write-flow-logs"
  role   = aws_iam_role.flow[each.key].name
  policy = data.aws_iam_policy_document.flow_write[each.key].json
}

resource "aws_iam_role_policies_exclusive" "flow" {
  for_each = local.cloudwatch_logs

  role_name    = aws_iam_role.flow[each.key].name
  policy_names = [aws_iam_role_policy.flow[each.key].name]
}

resource "aws_iam_role_policy_attachments_exclusive" "flow" {
  for_each = local.cloudwatch_logs

  role_name   = aws_iam_role.flow[each.key].name
  policy_arns = []
}
