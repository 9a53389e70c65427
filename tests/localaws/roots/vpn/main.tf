# VPN gateway, customer gateways, connections: BGP with every tunnel option, and static routes.

resource "aws_vpc" "this" {
  cidr_block = "10.20.0.0/16"
}

resource "aws_vpn_gateway" "this" {
  amazon_side_asn = 64620
  tags            = { Name = "vpn" }
}

resource "aws_vpn_gateway_attachment" "this" {
  vpc_id         = aws_vpc.this.id
  vpn_gateway_id = aws_vpn_gateway.this.id
}

resource "aws_route_table" "this" {
  vpc_id = aws_vpc.this.id
}

resource "aws_vpn_gateway_route_propagation" "this" {
  vpn_gateway_id = aws_vpn_gateway_attachment.this.vpn_gateway_id
  route_table_id = aws_route_table.this.id
}

resource "aws_customer_gateway" "this" {
  for_each    = { bgp = "203.0.113.10", static = "203.0.113.20" }
  bgp_asn     = 65010
  ip_address  = each.value
  type        = "ipsec.1"
  device_name = each.key
  tags        = { Name = each.key }
}

resource "aws_vpn_connection" "bgp" {
  vpn_gateway_id      = aws_vpn_gateway.this.id
  customer_gateway_id = aws_customer_gateway.this["bgp"].id
  type                = aws_customer_gateway.this["bgp"].type
  static_routes_only  = false

  tunnel1_inside_cidr                  = "169.254.20.0/30"
  tunnel1_preshared_key                = "first_tunnels_key_0123456789"
  tunnel1_ike_versions                 = ["ikev2"]
  tunnel1_startup_action               = "add"
  tunnel1_dpd_timeout_action           = "restart"
  tunnel1_dpd_timeout_seconds          = 30
  tunnel1_phase1_encryption_algorithms = ["AES256", "AES256-GCM-16"]
  tunnel1_phase1_integrity_algorithms  = ["SHA2-256", "SHA2-384"]
  tunnel1_phase1_dh_group_numbers      = [19, 20]
  tunnel1_phase1_lifetime_seconds      = 28800
  tunnel1_phase2_encryption_algorithms = ["AES256-GCM-16"]
  tunnel1_phase2_integrity_algorithms  = ["SHA2-256"]
  tunnel1_phase2_dh_group_numbers      = [19, 20]
  tunnel1_phase2_lifetime_seconds      = 3600
  tunnel1_rekey_margin_time_seconds    = 270
  tunnel1_rekey_fuzz_percentage        = 50
  tunnel1_replay_window_size           = 512

  tunnel2_inside_cidr                  = "169.254.20.4/30"
  tunnel2_preshared_key                = "second_tunnels_key_0123456789"
  tunnel2_ike_versions                 = ["ikev2"]
  tunnel2_startup_action               = "start"
  tunnel2_dpd_timeout_action           = "restart"
  tunnel2_dpd_timeout_seconds          = 60
  tunnel2_phase1_encryption_algorithms = ["AES128"]
  tunnel2_phase1_integrity_algorithms  = ["SHA2-256"]
  tunnel2_phase1_dh_group_numbers      = [14]
  tunnel2_phase1_lifetime_seconds      = 14400
  tunnel2_phase2_encryption_algorithms = ["AES128"]
  tunnel2_phase2_integrity_algorithms  = ["SHA2-256"]
  tunnel2_phase2_dh_group_numbers      = [14]
  tunnel2_phase2_lifetime_seconds      = 1800

  tunnel1_log_options {
    cloudwatch_log_options {
      log_enabled       = true
      log_group_arn     = aws_cloudwatch_log_group.vpn.arn
      log_output_format = "json"
    }
  }

  tags = { Name = "bgp" }
}

resource "aws_cloudwatch_log_group" "vpn" {
  name = "/vpn/tunnels"
}

resource "aws_vpn_connection" "static" {
  vpn_gateway_id           = aws_vpn_gateway.this.id
  customer_gateway_id      = aws_customer_gateway.this["static"].id
  type                     = "ipsec.1"
  static_routes_only       = true
  local_ipv4_network_cidr  = "10.0.0.0/16"
  remote_ipv4_network_cidr = "10.20.0.0/16"
  tags                     = { Name = "static" }
}

resource "aws_vpn_connection_route" "this" {
  for_each               = toset(["10.0.0.0/16", "10.1.0.0/16"])
  destination_cidr_block = each.value
  vpn_connection_id      = aws_vpn_connection.static.id
}
