# A transit gateway in one region, with its VPC attached. transit_peering joins two of them, and vpn_connections joins it
# to physical sites.

resource "aws_ec2_transit_gateway" "this" {
  description                     = var.name
  amazon_side_asn                 = var.asn
  auto_accept_shared_attachments  = "disable"
  default_route_table_association = "enable"
  default_route_table_propagation = "enable"
  dns_support                     = "enable"
  vpn_ecmp_support                = "enable"

  tags = merge(var.tags, { Name = var.name })
}

# Its interfaces lie in subnets that have room to spare anyway; they need no rules of their own, as the network ACLs
# are open and the machines' security groups see the true source.
resource "aws_ec2_transit_gateway_vpc_attachment" "this" {
  transit_gateway_id = aws_ec2_transit_gateway.this.id
  vpc_id             = var.vpc_id
  subnet_ids         = values(var.subnets)

  tags = merge(var.tags, { Name = var.name })
}

# To physical sites, wherever these are connected: what it learns stays in its own route table.
resource "aws_route" "site" {
  for_each = { for pair in setproduct(keys(var.route_tables), var.lans) : join(" ", pair) => pair }

  route_table_id         = var.route_tables[each.value[0]]
  destination_cidr_block = each.value[1]
  transit_gateway_id     = aws_ec2_transit_gateway_vpc_attachment.this.transit_gateway_id
}
