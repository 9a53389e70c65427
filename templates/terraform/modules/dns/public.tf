locals {
  made    = { for public in var.public[*] : public.zone => public if public.id == null }
  adopted = { for public in var.public[*] : public.zone => public if public.id != null }
}

resource "aws_route53_zone" "public" {
  #checkov:skip=CKV2_AWS_38:Signing needs a record in the parent zone, which may be anywhere, and a broken chain takes the zone down.
  #checkov:skip=CKV2_AWS_39:A few public names; who asks for them says nothing worth keeping.
  for_each = local.made

  name    = each.key
  comment = "VPN end points and what else the world may see."

  tags = merge(var.tags, { Name = each.key })

  lifecycle {
    prevent_destroy = true
  }
}

data "aws_route53_zone" "public" {
  for_each = local.adopted

  zone_id = each.value.id

  lifecycle {
    postcondition {
      condition     = trimsuffix(self.name, ".") == each.key && !self.private_zone
      error_message = "public: the zone ${each.value.id} is ${self.private_zone ? "the private " : ""}${trimsuffix(self.name, ".")}, not the public ${each.key}."
    }
  }
}

locals {
  public_zone = one(concat(
    [for zone in aws_route53_zone.public : { id = zone.zone_id, name_servers = zone.name_servers }],
    [for zone in data.aws_route53_zone.public : { id = zone.zone_id, name_servers = zone.name_servers }],
  ))
}

resource "aws_route53_record" "public" {
  for_each = var.public_records

  zone_id = try(local.public_zone.id, null)
  name    = each.value.name
  type    = each.value.type
  ttl     = coalesce(each.value.ttl, var.ttl)
  records = local.public_record_values[each.key]

  lifecycle {
    precondition {
      condition     = var.public != null
      error_message = "public_records: ${each.value.name} needs a public zone."
    }
  }
}
