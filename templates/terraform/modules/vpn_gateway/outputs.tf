output "id" {
  description = "The virtual private gateway."
  value       = aws_vpn_gateway.this.id
}

output "connections" {
  description = "By name: the connection's id, and for each tunnel its outside address at AWS and its inside addresses."
  value = {
    for name, connection in aws_vpn_connection.this : name => {
      id = connection.id
      tunnels = [
        {
          outside     = connection.tunnel1_address
          aws_inside  = connection.tunnel1_vgw_inside_address
          site_inside = connection.tunnel1_cgw_inside_address
        },
        {
          outside     = connection.tunnel2_address
          aws_inside  = connection.tunnel2_vgw_inside_address
          site_inside = connection.tunnel2_cgw_inside_address
        },
      ]
    }
  }
}
