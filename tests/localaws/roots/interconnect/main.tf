# Two regions, joined by peering and by transit gateways; a private zone that both see.

provider "aws" {
  alias  = "east"
  region = "us-east-1"
}

resource "aws_vpc" "west" {
  cidr_block           = "10.30.0.0/16"
  enable_dns_hostnames = true
}

resource "aws_vpc" "east" {
  provider             = aws.east
  cidr_block           = "10.31.0.0/16"
  enable_dns_hostnames = true
}

# Peering

resource "aws_vpc_peering_connection" "this" {
  vpc_id      = aws_vpc.west.id
  peer_vpc_id = aws_vpc.east.id
  peer_region = "us-east-1"
  auto_accept = false
  tags        = { Name = "west-east" }
}

resource "aws_vpc_peering_connection_accepter" "this" {
  provider                  = aws.east
  vpc_peering_connection_id = aws_vpc_peering_connection.this.id
  auto_accept               = true
  tags                      = { Name = "west-east" }
}

resource "aws_vpc_peering_connection_options" "west" {
  vpc_peering_connection_id = aws_vpc_peering_connection_accepter.this.id
  requester {
    allow_remote_vpc_dns_resolution = true
  }
}

resource "aws_vpc_peering_connection_options" "east" {
  provider                  = aws.east
  vpc_peering_connection_id = aws_vpc_peering_connection_accepter.this.id
  accepter {
    allow_remote_vpc_dns_resolution = true
  }
}

resource "aws_route_table" "west" {
  vpc_id = aws_vpc.west.id
}

resource "aws_route_table" "east" {
  provider = aws.east
  vpc_id   = aws_vpc.east.id
}

resource "aws_route" "west" {
  route_table_id            = aws_route_table.west.id
  destination_cidr_block    = aws_vpc.east.cidr_block
  vpc_peering_connection_id = aws_vpc_peering_connection_accepter.this.id
}

resource "aws_route" "east" {
  provider                  = aws.east
  route_table_id            = aws_route_table.east.id
  destination_cidr_block    = aws_vpc.west.cidr_block
  vpc_peering_connection_id = aws_vpc_peering_connection_accepter.this.id
}

# Transit gateways

resource "aws_subnet" "west" {
  vpc_id     = aws_vpc.west.id
  cidr_block = "10.30.0.0/24"
}

resource "aws_ec2_transit_gateway" "west" {
  description                     = "west"
  amazon_side_asn                 = 64530
  default_route_table_association = "disable"
  default_route_table_propagation = "disable"
  auto_accept_shared_attachments  = "disable"
  tags                            = { Name = "west" }
}

resource "aws_ec2_transit_gateway" "east" {
  provider        = aws.east
  description     = "east"
  amazon_side_asn = 64531
  tags            = { Name = "east" }
}

resource "aws_ec2_transit_gateway_vpc_attachment" "west" {
  transit_gateway_id                              = aws_ec2_transit_gateway.west.id
  vpc_id                                          = aws_vpc.west.id
  subnet_ids                                      = [aws_subnet.west.id]
  transit_gateway_default_route_table_association = false
  transit_gateway_default_route_table_propagation = false
  tags                                            = { Name = "west" }
}

resource "aws_ec2_transit_gateway_route_table" "west" {
  transit_gateway_id = aws_ec2_transit_gateway.west.id
  tags               = { Name = "west" }
}

resource "aws_ec2_transit_gateway_route_table_association" "west" {
  transit_gateway_attachment_id  = aws_ec2_transit_gateway_vpc_attachment.west.id
  transit_gateway_route_table_id = aws_ec2_transit_gateway_route_table.west.id
}

resource "aws_ec2_transit_gateway_route_table_propagation" "west" {
  transit_gateway_attachment_id  = aws_ec2_transit_gateway_vpc_attachment.west.id
  transit_gateway_route_table_id = aws_ec2_transit_gateway_route_table.west.id
}

resource "aws_ec2_transit_gateway_peering_attachment" "this" {
  transit_gateway_id      = aws_ec2_transit_gateway.west.id
  peer_transit_gateway_id = aws_ec2_transit_gateway.east.id
  peer_region             = "us-east-1"
  tags                    = { Name = "west-east" }
}

resource "aws_ec2_transit_gateway_peering_attachment_accepter" "this" {
  provider                      = aws.east
  transit_gateway_attachment_id = aws_ec2_transit_gateway_peering_attachment.this.id
  tags                          = { Name = "west-east" }
}

resource "aws_ec2_transit_gateway_route_table_association" "peering" {
  transit_gateway_attachment_id  = aws_ec2_transit_gateway_peering_attachment_accepter.this.id
  transit_gateway_route_table_id = aws_ec2_transit_gateway_route_table.west.id
}

resource "aws_ec2_transit_gateway_route" "west" {
  destination_cidr_block         = "10.31.0.0/16"
  transit_gateway_attachment_id  = aws_ec2_transit_gateway_peering_attachment_accepter.this.id
  transit_gateway_route_table_id = aws_ec2_transit_gateway_route_table.west.id
}

resource "aws_route" "transit" {
  route_table_id         = aws_route_table.west.id
  destination_cidr_block = "10.32.0.0/16"
  transit_gateway_id     = aws_ec2_transit_gateway_vpc_attachment.west.transit_gateway_id
}

# A private zone

resource "aws_vpc" "third" {
  cidr_block = "10.33.0.0/16"
}

resource "aws_route53_zone" "private" {
  name    = "cluster.internal"
  comment = "of both regions"
  vpc {
    vpc_id     = aws_vpc.west.id
    vpc_region = "us-west-2"
  }
  vpc {
    vpc_id     = aws_vpc.third.id
    vpc_region = "us-west-2"
  }
  tags = { Name = "private" }
}

resource "aws_route53_zone" "associated" {
  name = "associated.internal"
  vpc {
    vpc_id = aws_vpc.west.id
  }
  lifecycle {
    ignore_changes = [vpc]
  }
}

resource "aws_route53_zone_association" "east" {
  zone_id    = aws_route53_zone.associated.id
  vpc_id     = aws_vpc.east.id
  vpc_region = "us-east-1"
}

resource "aws_route53_zone" "reverse" {
  name = "30.10.in-addr.arpa"
  vpc {
    vpc_id = aws_vpc.west.id
  }
}

resource "aws_route53_record" "this" {
  for_each = {
    "master"    = { type = "A", records = ["10.30.0.10", "10.30.0.11"] }
    "_srv._tcp" = { type = "SRV", records = ["0 10 6443 master.cluster.internal"] }
    "alias"     = { type = "CNAME", records = ["master.cluster.internal"] }
    "text"      = { type = "TXT", records = ["a=b; c"] }
    "*.wild"    = { type = "A", records = ["10.30.0.12"] }
  }
  zone_id = aws_route53_zone.private.zone_id
  name    = "${each.key}.cluster.internal"
  type    = each.value.type
  ttl     = 60
  records = each.value.records
}

resource "aws_route53_record" "weighted" {
  for_each       = { a = 10, b = 20 }
  zone_id        = aws_route53_zone.private.zone_id
  name           = "api"
  type           = "A"
  ttl            = 60
  records        = ["10.30.0.${each.value}"]
  set_identifier = each.key
  weighted_routing_policy {
    weight = each.value
  }
}
