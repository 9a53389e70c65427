# Two transit gateways of one account in two regions, with routes both ways. A peering attachment knows no BGP,
# so its routes are static.

data "aws_region" "accepter" {
  provider = aws.accepter
}

resource "aws_ec2_transit_gateway_peering_attachment" "this" {
  provider = aws.requester

  transit_gateway_id      = var.requester.transit_gateway_id
  peer_transit_gateway_id = var.accepter.transit_gateway_id
  peer_region             = data.aws_region.accepter.name

  tags = merge(var.tags, { Name = var.name })
}

resource "aws_ec2_transit_gateway_peering_attachment_accepter" "this" {
  provider = aws.accepter

  transit_gateway_attachment_id = aws_ec2_transit_gateway_peering_attachment.this.id

  tags = merge(var.tags, { Name = var.name })
}

resource "aws_ec2_transit_gateway_route" "requester" {
  provider = aws.requester

  transit_gateway_route_table_id = var.requester.transit_route_table
  transit_gateway_attachment_id  = aws_ec2_transit_gateway_peering_attachment_accepter.this.id
  destination_cidr_block         = var.accepter.block
}

resource "aws_ec2_transit_gateway_route" "accepter" {
  provider = aws.accepter

  transit_gateway_route_table_id = var.accepter.transit_route_table
  transit_gateway_attachment_id  = aws_ec2_transit_gateway_peering_attachment_accepter.this.id
  destination_cidr_block         = var.requester.block
}

# Physical sites that are connected to the other side, or beyond it.
resource "aws_ec2_transit_gateway_route" "requester_lan" {
  provider = aws.requester
  for_each = var.accepter.lans

  transit_gateway_route_table_id = var.requester.transit_route_table
  transit_gateway_attachment_id  = aws_ec2_transit_gateway_peering_attachment_accepter.this.id
  destination_cidr_block         = each.value
}

resource "aws_ec2_transit_gateway_route" "accepter_lan" {
  provider = aws.accepter
  for_each = var.requester.lans

  transit_gateway_route_table_id = var.accepter.transit_route_table
  transit_gateway_attachment_id  = aws_ec2_transit_gateway_peering_attachment_accepter.this.id
  destination_cidr_block         = each.value
}

resource "aws_route" "requester" {
  provider = aws.requester
  for_each = var.requester.route_tables

  route_table_id         = each.value
  destination_cidr_block = var.accepter.block
  transit_gateway_id     = var.requester.transit_gateway_id
}

resource "aws_route" "accepter" {
  provider = aws.accepter
  for_each = var.accepter.route_tables

  route_table_id         = each.value
  destination_cidr_block = var.requester.block
  transit_gateway_id     = var.accepter.transit_gateway_id
}
