resource "aws_vpc_endpoint" "gateway" {
  for_each = var.gateway_endpoints

  vpc_id            = aws_vpc.this.id
  service_name      = each.value
  vpc_endpoint_type = "Gateway"

  # As AWS makes it. Without it here, what somebody else writes there would stay.
  policy = jsonencode({
    Version   = "2008-10-17"
    Statement = [{ Effect = "Allow", Principal = "*", Action = "*", Resource = "*" }]
  })

  route_table_ids = [for table in aws_route_table.this : table.id]

  tags = merge(var.tags, { Name = "${var.name}-${each.key}" })
}

# Machines call a service by its public name, which resolves to the endpoint inside of the VPC, and only there.
resource "aws_vpc_endpoint" "interface" {
  for_each = var.interface_endpoints

  vpc_id              = aws_vpc.this.id
  service_name        = each.value
  vpc_endpoint_type   = "Interface"
  private_dns_enabled = true
  subnet_ids          = [for name, subnet in var.subnets : aws_subnet.this[name].id if subnet.tier == "private"]
  security_group_ids  = [for group in aws_security_group.endpoints : group.id]

  tags = merge(var.tags, { Name = "${var.name}-${each.key}" })

  depends_on = [aws_vpc_security_group_ingress_rule.endpoints]
}

locals {
  endpoints_groups = toset(length(var.interface_endpoints) > 0 ? ["endpoints"] : [])
}

resource "aws_security_group" "endpoints" {
  for_each = local.endpoints_groups

  name        = "${var.name}-${each.key}"
  description = "Interface endpoints: HTTPS from the VPC"
  vpc_id      = aws_vpc.this.id

  tags = merge(var.tags, { Name = "${var.name}-${each.key}" })
}

resource "aws_vpc_security_group_ingress_rule" "endpoints" {
  for_each = local.endpoints_groups

  security_group_id = aws_security_group.endpoints[each.key].id
  description       = "HTTPS from the VPC"
  cidr_ipv4         = aws_vpc.this.cidr_block
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443

  tags = merge(var.tags, { Name = "${each.key}-https" })
}
