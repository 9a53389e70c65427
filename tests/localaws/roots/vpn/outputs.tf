# What the connection tells of its tunnels, and what it should.

output "inside" {
  value = [
    aws_vpn_connection.bgp.tunnel1_vgw_inside_address, aws_vpn_connection.bgp.tunnel1_cgw_inside_address,
    aws_vpn_connection.bgp.tunnel2_vgw_inside_address, aws_vpn_connection.bgp.tunnel2_cgw_inside_address,
  ]
}

output "expected_inside" {
  value = ["169.254.20.1", "169.254.20.2", "169.254.20.5", "169.254.20.6"]
}

output "rest" {
  value = {
    addresses = length(distinct([aws_vpn_connection.bgp.tunnel1_address, aws_vpn_connection.bgp.tunnel2_address]))
    asn       = aws_vpn_connection.bgp.tunnel1_bgp_asn
    key       = nonsensitive(aws_vpn_connection.bgp.tunnel1_preshared_key)
  }
}

output "expected_rest" {
  value = {
    addresses = 2
    asn       = "64620"
    key       = "first_tunnels_key_0123456789"
  }
}
