# A transit gateway in one region, with its VPC attached. transit_peering joins two of them. Sites are not reached
# through it: each VPC has its own virtual private gateway, and a VPC passes nothing on from one gateway to another.

resource "aws_ec2_transit_gateway" "this" {
  description                     = var.name
  amazon_side_asn                 = var.asn
  auto_accept_shared_attachments  = "disable"
  default_route_table_association = "enable"
  default_route_table_propagation = "enable"
  dns_support                     = "enable"

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
