output "connections" {
  description = "By name: the connection's id, and for each tunnel its outside address at AWS and its inside addresses."
  value = {
    for key, connection in aws_vpn_connection.this : trimsuffix(key, " static") => {
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
