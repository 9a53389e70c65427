data "aws_region" "current" {}

data "aws_partition" "current" {}

resource "aws_vpc_endpoint" "gateway" {
  for_each = var.endpoints

  vpc_id            = aws_vpc.this.id
  service_name      = "${data.aws_partition.current.reverse_dns_prefix}.${data.aws_region.current.name}.${each.key}"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = [for table in aws_route_table.this : table.id]

  tags = merge(var.tags, { Name = "${var.name}-${each.key}" })
}
