locals {
  # One table for all public subnets, and one a zone for the others, so that each zone can use its own NAT.
  private_zones = toset([for subnet in var.subnets : subnet.zone if subnet.tier != "public"])
  route_table_of = {
    for name, subnet in var.subnets : name => subnet.tier == "public" ? "public" : "private-${subnet.zone}"
  }
}

resource "aws_subnet" "this" {
  for_each = var.subnets

  vpc_id                  = aws_vpc.this.id
  cidr_block              = each.value.block
  availability_zone       = each.value.zone_id == null ? each.value.zone : null
  availability_zone_id    = each.value.zone_id
  map_public_ip_on_launch = false

  tags = merge(var.tags, { Name = "${var.name}-${each.key}", tier = each.value.tier })

  # A subnet that goes waits until groups and endpoints that used it are updated; by default it would go first, and
  # AWS refuses that while anything is in it.
  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_route_table" "this" {
  for_each = toset(values(local.route_table_of))

  vpc_id = aws_vpc.this.id

  tags = merge(var.tags, { Name = "${var.name}-${each.key}" })
}

resource "aws_route_table_association" "this" {
  for_each = local.route_table_of

  subnet_id      = aws_subnet.this[each.key].id
  route_table_id = aws_route_table.this[each.value].id
}

resource "aws_route" "internet" {
  for_each = toset([for table in values(local.route_table_of) : table if table == "public"])

  route_table_id         = aws_route_table.this[each.key].id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.this.id
}
