resource "aws_route53_zone" "private" {
  name    = var.zone
  comment = "Machines by name, for the cluster alone."

  vpc {
    vpc_id     = var.primary_vpc.id
    vpc_region = var.primary_vpc.region
  }

  tags = merge(var.tags, { Name = var.zone })

  lifecycle {
    prevent_destroy = true

    # A private zone is made with one VPC; read back, it has the others too, which are associations of their own.
    ignore_changes = [vpc]
  }
}

resource "aws_route53_zone_association" "this" {
  for_each = var.vpcs

  zone_id    = aws_route53_zone.private.zone_id
  vpc_id     = each.value.id
  vpc_region = each.value.region
}

resource "aws_route53_record" "private" {
  for_each = var.records

  zone_id = aws_route53_zone.private.zone_id
  name    = each.value.name
  type    = each.value.type
  ttl     = coalesce(each.value.ttl, var.ttl)
  records = local.record_values[each.key]
}

# An internal load balancer's targets are where they are: there is no second answer to turn to when they are ill.
resource "aws_route53_record" "alias" {
  #checkov:skip=CKV2_AWS_23:The load balancer is in another module.
  for_each = var.aliases

  zone_id = aws_route53_zone.private.zone_id
  name    = each.value.name
  type    = "A"

  alias {
    name                   = each.value.target
    zone_id                = each.value.target_zone_id
    evaluate_target_health = false
  }
}

locals {
  # A TXT record is made of strings of up to 255 characters, with quotes escaped; the provider adds the outer quotes.
  record_values = {
    for key, record in var.records : key => [
      for value in record.values : record.type != "TXT" ? value : join("\"\"", [
        for part in regexall("(?s).{1,255}", value) : replace(part, "\"", "\\\"")
      ])
    ]
  }

  public_record_values = {
    for key, record in var.public_records : key => [
      for value in record.values : record.type != "TXT" ? value : join("\"\"", [
        for part in regexall("(?s).{1,255}", value) : replace(part, "\"", "\\\"")
      ])
    ]
  }
}
