# CloudWatch alarms: AWS's view of the tunnels. They reach people while the cluster, and its Prometheus, cannot.

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

data "aws_region" "current" {}

locals {
  topics = { for alarms in var.alarms[*] : "${var.name}-alarms" => alarms }
  emails = merge([for topic, alarms in local.topics : { for email in alarms.emails : email => topic }]...)

  # TunnelState of a connection is 1 while both of its tunnels are up, and less while one is not (Site-to-Site VPN User
  # Guide, "Monitor AWS Site-to-Site VPN tunnels using Amazon CloudWatch"); with BGP, up means an established session.
  #
  # By the connection's name, not its key: the end of an alarm under an old key would be that of a new one of its name.
  alarms = merge([
    for topic in keys(local.topics) : merge([
      for key, connection in local.connections : {
        # A connection of which AWS says nothing counts as down.
        "${connection.name} down" = {
          connection  = key
          name        = "${var.name}-${connection.name}-down"
          description = "Both tunnels of the VPN connection ${connection.name} have been down for five minutes: it carries no traffic."
          statistic   = "Maximum"
          operator    = "LessThanOrEqualToThreshold"
          threshold   = 0
          periods     = 1
          missing     = "breaching"
          topic       = topic
        }
        # Longer than a replacement of an endpoint, or a new key, takes.
        "${connection.name} degraded" = {
          connection  = key
          name        = "${var.name}-${connection.name}-degraded"
          description = "A tunnel of the VPN connection ${connection.name} has been down, or has flapped, for fifteen minutes: traffic has at most one other left."
          statistic   = "Minimum"
          operator    = "LessThanThreshold"
          threshold   = 1
          periods     = 3
          missing     = "ignore"
          topic       = topic
        }
      }
    ]...)
  ]...)
}

resource "aws_sns_topic" "alarms" {
  #checkov:skip=CKV_AWS_26:CloudWatch may not use AWS's own key for SNS, and names of tunnels are not secrets worth a key.
  for_each = local.topics

  name         = each.key
  display_name = each.key

  tags = merge(var.tags, { Name = each.key })
}

data "aws_iam_policy_document" "alarms" {
  for_each = local.topics

  # Alarms of this account and region alone.
  statement {
    sid       = "Alarms"
    actions   = ["sns:Publish"]
    resources = [aws_sns_topic.alarms[each.key].arn]

    principals {
      type        = "Service"
      identifiers = ["cloudwatch.amazonaws.com"]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [data.aws_caller_identity.current.account_id]
    }

    condition {
      test     = "ArnLike"
      variable = "aws:SourceArn"
      values = [
        "arn:${data.aws_partition.current.partition}:cloudwatch:${data.aws_region.current.name}:${data.aws_caller_identity.current.account_id}:alarm:${var.name}-*",
      ]
    }
  }
}

resource "aws_sns_topic_policy" "alarms" {
  for_each = local.topics

  arn    = aws_sns_topic.alarms[each.key].arn
  policy = data.aws_iam_policy_document.alarms[each.key].json
}

# Each address gets a mail that asks for its consent; until then it hears of nothing.
resource "aws_sns_topic_subscription" "alarms" {
  for_each = local.emails

  topic_arn = aws_sns_topic.alarms[each.value].arn
  protocol  = "email"
  endpoint  = each.key
}

resource "aws_cloudwatch_metric_alarm" "tunnels" {
  for_each = local.alarms

  alarm_name        = each.value.name
  alarm_description = each.value.description

  namespace   = "AWS/VPN"
  metric_name = "TunnelState"
  dimensions  = { VpnId = aws_vpn_connection.this[each.value.connection].id }

  statistic           = each.value.statistic
  comparison_operator = each.value.operator
  threshold           = each.value.threshold
  period              = 300
  evaluation_periods  = each.value.periods
  treat_missing_data  = each.value.missing

  alarm_actions = [aws_sns_topic.alarms[each.value.topic].arn]
  ok_actions    = [aws_sns_topic.alarms[each.value.topic].arn]

  tags = merge(var.tags, local.connections[each.value.connection].tags, { Name = each.value.name })

  # An alarm that is made first would tell nobody that it began.
  depends_on = [aws_sns_topic_policy.alarms]
}
