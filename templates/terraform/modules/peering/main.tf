# A peering connection between VPCs of one account in two regions, with routes both ways.

data "aws_region" "accepter" {
  provider = aws.accepter
}

resource "aws_vpc_peering_connection" "this" {
  provider = aws.requester

  vpc_id      = var.requester.vpc_id
  peer_vpc_id = var.accepter.vpc_id
  peer_region = data.aws_region.accepter.name
  auto_accept = false

  tags = merge(var.tags, { Name = var.name })
}

resource "aws_vpc_peering_connection_accepter" "this" {
  provider = aws.accepter

  vpc_peering_connection_id = aws_vpc_peering_connection.this.id
  auto_accept               = true

  tags = merge(var.tags, { Name = var.name })
}

# Options can be set once the connection is active, so these two wait for the accepter.
resource "aws_vpc_peering_connection_options" "requester" {
  provider = aws.requester

  vpc_peering_connection_id = aws_vpc_peering_connection_accepter.this.id

  requester {
    allow_remote_vpc_dns_resolution = var.dns_resolution
  }
}

resource "aws_vpc_peering_connection_options" "accepter" {
  provider = aws.accepter

  vpc_peering_connection_id = aws_vpc_peering_connection_accepter.this.id

  accepter {
    allow_remote_vpc_dns_resolution = var.dns_resolution
  }
}

resource "aws_route" "requester" {
  provider = aws.requester
  for_each = var.requester.route_tables

  route_table_id            = each.value
  destination_cidr_block    = var.accepter.block
  vpc_peering_connection_id = aws_vpc_peering_connection_accepter.this.id
}

resource "aws_route" "accepter" {
  provider = aws.accepter
  for_each = var.accepter.route_tables

  route_table_id            = each.value
  destination_cidr_block    = var.requester.block
  vpc_peering_connection_id = aws_vpc_peering_connection_accepter.this.id
}
