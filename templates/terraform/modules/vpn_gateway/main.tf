# One virtual private gateway, and a VPN connection of two tunnels for each public address of each site.
# Pre-shared keys end up in the state, as every value that Terraform sets does: keep the state private.

resource "aws_vpn_gateway" "this" {
  amazon_side_asn = var.asn

  tags = merge(var.tags, { Name = var.name })

  lifecycle {
    prevent_destroy = true
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

resource "aws_customer_gateway" "this" {
  for_each = var.customer_gateways

  type       = "ipsec.1"
  ip_address = each.value.address

  # AWS answers a request for the same type, address, AS number and device name with the gateway that exists. Without a
  # name of its own, two environments behind one address, or a site before and after its renaming, would share one, and
  # the first to delete it would take it from the other.
  device_name = "${var.name}-${each.key}"

  # AWS has two fields for what is one number.
  bgp_asn          = each.value.asn <= 2147483647 ? each.value.asn : null
  bgp_asn_extended = each.value.asn > 2147483647 ? each.value.asn : null

  tags = merge(var.tags, each.value.tags, { Name = "${var.name}-${each.key}" })

  # A connection moves to the new gateway before the old one goes.
  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpn_connection" "this" {
  for_each = var.connections

  type                = "ipsec.1"
  vpn_gateway_id      = aws_vpn_gateway_attachment.this.vpn_gateway_id
  customer_gateway_id = aws_customer_gateway.this[each.value.customer_gateway].id
  static_routes_only  = length(each.value.static_routes) > 0

  tunnel1_inside_cidr                     = each.value.tunnels[0].inside
  tunnel1_preshared_key                   = var.tunnel_keys[each.value.tunnels[0].key]
  tunnel1_ike_versions                    = ["ikev2"]
  tunnel1_startup_action                  = each.value.startup_action
  tunnel1_dpd_timeout_action              = each.value.startup_action == "start" ? "restart" : "clear"
  tunnel1_dpd_timeout_seconds             = var.proposals.dpd_timeout
  tunnel1_phase1_encryption_algorithms    = var.proposals.encryption
  tunnel1_phase1_integrity_algorithms     = var.proposals.integrity
  tunnel1_phase1_dh_group_numbers         = var.proposals.dh_groups
  tunnel1_phase1_lifetime_seconds         = var.proposals.phase1_lifetime
  tunnel1_phase2_encryption_algorithms    = var.proposals.encryption
  tunnel1_phase2_integrity_algorithms     = var.proposals.integrity
  tunnel1_phase2_dh_group_numbers         = var.proposals.dh_groups
  tunnel1_phase2_lifetime_seconds         = var.proposals.phase2_lifetime
  tunnel1_rekey_margin_time_seconds       = var.proposals.rekey_margin
  tunnel1_rekey_fuzz_percentage           = var.proposals.rekey_fuzz_percent
  tunnel1_replay_window_size              = var.proposals.replay_window
  tunnel1_enable_tunnel_lifecycle_control = var.proposals.lifecycle_control

  tunnel2_inside_cidr                     = each.value.tunnels[1].inside
  tunnel2_preshared_key                   = var.tunnel_keys[each.value.tunnels[1].key]
  tunnel2_ike_versions                    = ["ikev2"]
  tunnel2_startup_action                  = each.value.startup_action
  tunnel2_dpd_timeout_action              = each.value.startup_action == "start" ? "restart" : "clear"
  tunnel2_dpd_timeout_seconds             = var.proposals.dpd_timeout
  tunnel2_phase1_encryption_algorithms    = var.proposals.encryption
  tunnel2_phase1_integrity_algorithms     = var.proposals.integrity
  tunnel2_phase1_dh_group_numbers         = var.proposals.dh_groups
  tunnel2_phase1_lifetime_seconds         = var.proposals.phase1_lifetime
  tunnel2_phase2_encryption_algorithms    = var.proposals.encryption
  tunnel2_phase2_integrity_algorithms     = var.proposals.integrity
  tunnel2_phase2_dh_group_numbers         = var.proposals.dh_groups
  tunnel2_phase2_lifetime_seconds         = var.proposals.phase2_lifetime
  tunnel2_rekey_margin_time_seconds       = var.proposals.rekey_margin
  tunnel2_rekey_fuzz_percentage           = var.proposals.rekey_fuzz_percent
  tunnel2_replay_window_size              = var.proposals.replay_window
  tunnel2_enable_tunnel_lifecycle_control = var.proposals.lifecycle_control

  tags = merge(var.tags, each.value.tags, { Name = "${var.name}-${each.key}" })

  lifecycle {
    precondition {
      condition     = contains(keys(var.customer_gateways), each.value.customer_gateway)
      error_message = "connections: ${each.key} names the customer gateway ${each.value.customer_gateway}, which is not one of customer_gateways."
    }

    precondition {
      condition     = alltrue([for tunnel in each.value.tunnels : contains(nonsensitive(keys(var.tunnel_keys)), tunnel.key)])
      error_message = "connections: tunnel_keys lacks a key that ${each.key} names (${join(", ", each.value.tunnels[*].key)})."
    }
  }
}

locals {
  static_routes = merge([
    for name, connection in var.connections : {
      for block in connection.static_routes : "${name} ${block}" => { connection = name, block = block }
    }
  ]...)
}

resource "aws_vpn_connection_route" "this" {
  for_each = local.static_routes

  vpn_connection_id      = aws_vpn_connection.this[each.value.connection].id
  destination_cidr_block = each.value.block
}
