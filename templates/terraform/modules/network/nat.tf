locals {
  nat_zones        = toset(values(var.nat))
  public_subnet_of = { for name, subnet in var.subnets : subnet.zone => name if subnet.tier == "public" }
}

resource "aws_eip" "nat" {
  for_each = local.nat_zones

  domain = "vpc"

  tags = merge(var.tags, { Name = "${var.name}-nat-${each.key}" })

  # An address can be mapped in a VPC only while the VPC has its internet gateway.
  depends_on = [aws_internet_gateway.this]

  # Others let these addresses through their firewalls.
  lifecycle {
    prevent_destroy = true

    precondition {
      condition     = contains(keys(local.public_subnet_of), each.key)
      error_message = "nat: ${each.key} has no public subnet for a NAT gateway."
    }
  }
}

resource "aws_nat_gateway" "this" {
  for_each = local.nat_zones

  allocation_id = aws_eip.nat[each.key].id
  subnet_id     = aws_subnet.this[local.public_subnet_of[each.key]].id

  tags = merge(var.tags, { Name = "${var.name}-${each.key}" })

  depends_on = [aws_internet_gateway.this]
}

resource "aws_route" "nat" {
  for_each = { for zone, nat_zone in var.nat : zone => nat_zone if contains(local.private_zones, zone) }

  route_table_id         = aws_route_table.this["private-${each.key}"].id
  destination_cidr_block = "0.0.0.0/0"
  nat_gateway_id         = aws_nat_gateway.this[each.value].id
}
