# VPC, subnets, routes, NAT, endpoint, flow logs, security groups.

data "aws_availability_zones" "all" {
  state = "available"
}

resource "aws_vpc" "this" {
  cidr_block           = "10.10.0.0/16"
  enable_dns_support   = true
  enable_dns_hostnames = true
  tags                 = { Name = "network" }
}

resource "aws_vpc_ipv4_cidr_block_association" "pods" {
  vpc_id     = aws_vpc.this.id
  cidr_block = "10.11.0.0/16"
}

resource "aws_subnet" "this" {
  for_each                            = { public = 0, private = 1 }
  vpc_id                              = aws_vpc.this.id
  cidr_block                          = cidrsubnet(aws_vpc.this.cidr_block, 4, each.value)
  availability_zone                   = data.aws_availability_zones.all.names[each.value]
  map_public_ip_on_launch             = each.key == "public"
  private_dns_hostname_type_on_launch = "ip-name"
  tags                                = { Name = each.key }
}

resource "aws_internet_gateway" "this" {
  vpc_id = aws_vpc.this.id
  tags   = { Name = "network" }
}

resource "aws_eip" "nat" {
  domain = "vpc"
  tags   = { Name = "nat" }
}

resource "aws_nat_gateway" "this" {
  allocation_id = aws_eip.nat.id
  subnet_id     = aws_subnet.this["public"].id
  tags          = { Name = "network" }
  depends_on    = [aws_internet_gateway.this]
}

resource "aws_route_table" "this" {
  for_each = aws_subnet.this
  vpc_id   = aws_vpc.this.id
  tags     = { Name = each.key }
}

resource "aws_route_table_association" "this" {
  for_each       = aws_subnet.this
  subnet_id      = each.value.id
  route_table_id = aws_route_table.this[each.key].id
}

resource "aws_route" "public" {
  route_table_id         = aws_route_table.this["public"].id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.this.id
}

resource "aws_route" "private" {
  route_table_id         = aws_route_table.this["private"].id
  destination_cidr_block = "0.0.0.0/0"
  nat_gateway_id         = aws_nat_gateway.this.id
}

data "aws_region" "this" {}

resource "aws_vpc_endpoint" "s3" {
  vpc_id            = aws_vpc.this.id
  service_name      = "com.amazonaws.${data.aws_region.this.name}.s3"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = [for table in aws_route_table.this : table.id]
  tags              = { Name = "s3" }
}

resource "aws_vpc_endpoint" "interface" {
  for_each            = toset(["ssm", "ecr.api"])
  vpc_id              = aws_vpc.this.id
  service_name        = "com.amazonaws.${data.aws_region.this.name}.${each.key}"
  vpc_endpoint_type   = "Interface"
  private_dns_enabled = true
  subnet_ids          = [aws_subnet.this["private"].id]
  security_group_ids  = [aws_security_group.this["nodes"].id]
  tags                = { Name = each.key }
}

resource "aws_cloudwatch_log_group" "flow" {
  name              = "/network/flow"
  retention_in_days = 30
  tags              = { Name = "flow" }
}

resource "aws_iam_role" "flow" {
  name = "network-flow"
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "sts:AssumeRole", Principal = { Service = "vpc-flow-logs.amazonaws.com" } }]
  })
  tags = { Name = "flow" }
}

resource "aws_iam_role_policy" "flow" {
  name = "write"
  role = aws_iam_role.flow.id
  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = ["logs:CreateLogStream", "logs:PutLogEvents"], Resource = "${aws_cloudwatch_log_group.flow.arn}:*" }]
  })
}

resource "aws_flow_log" "this" {
  vpc_id                   = aws_vpc.this.id
  traffic_type             = "ALL"
  log_destination_type     = "cloud-watch-logs"
  log_destination          = aws_cloudwatch_log_group.flow.arn
  iam_role_arn             = aws_iam_role.flow.arn
  max_aggregation_interval = 60
  tags                     = { Name = "flow" }
}

resource "aws_default_security_group" "this" {
  vpc_id = aws_vpc.this.id
  tags   = { Name = "closed" }
}

resource "aws_security_group" "this" {
  for_each    = toset(["nodes", "masters"])
  name        = each.key
  description = "The ${each.key} of a cluster"
  vpc_id      = aws_vpc.this.id
  tags        = { Name = each.key }
}

resource "aws_vpc_security_group_ingress_rule" "referenced" {
  security_group_id            = aws_security_group.this["masters"].id
  referenced_security_group_id = aws_security_group.this["nodes"].id
  description                  = "API server"
  ip_protocol                  = "tcp"
  from_port                    = 6443
  to_port                      = 6443
  tags                         = { Name = "api" }
}

resource "aws_vpc_security_group_ingress_rule" "self" {
  security_group_id            = aws_security_group.this["nodes"].id
  referenced_security_group_id = aws_security_group.this["nodes"].id
  description                  = "Among nodes"
  ip_protocol                  = "-1"
}

resource "aws_vpc_security_group_ingress_rule" "block" {
  for_each          = { site = "10.0.0.0/16", laptops = "10.99.0.0/20" }
  security_group_id = aws_security_group.this["nodes"].id
  description       = "From ${each.key}"
  ip_protocol       = "tcp"
  from_port         = 22
  to_port           = 22
  cidr_ipv4         = each.value
  tags              = { Name = each.key }
}

resource "aws_vpc_security_group_ingress_rule" "ping" {
  security_group_id = aws_security_group.this["nodes"].id
  ip_protocol       = "icmp"
  from_port         = -1
  to_port           = -1
  cidr_ipv4         = "10.0.0.0/8"
}

resource "aws_vpc_security_group_egress_rule" "all" {
  for_each          = aws_security_group.this
  security_group_id = each.value.id
  description       = "Out"
  ip_protocol       = "-1"
  cidr_ipv4         = "0.0.0.0/0"
}
