# One virtual private gateway, which the VPC's route tables learn their routes to physical sites from.

resource "aws_vpn_gateway" "this" {
  amazon_side_asn = var.asn

  tags = merge(var.tags, { Name = var.name })

  lifecycle {
    prevent_destroy = true

    # Its connections move to a transit gateway before it goes.
    create_before_destroy = true
  }
}

resource "aws_vpn_gateway_attachment" "this" {
  vpc_id         = var.vpc_id
  vpn_gateway_id = aws_vpn_gateway.this.id
}

resource "aws_vpn_gateway_route_propagation" "this" {
  for_each = var.route_tables

  route_table_id = each.value
  vpn_gateway_id = aws_vpn_gateway_attachment.this.vpn_gateway_id
}
