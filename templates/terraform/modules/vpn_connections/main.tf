# A VPN connection of two tunnels for each public address of each physical site, to a virtual private gateway or to a
# transit gateway. That one attaches each by itself to its default route table, which then learns the site's routes.
# Pre-shared keys end up in the state, as every value that Terraform sets does: keep the state private.

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

locals {
  # A connection keeps its tunnels' addresses when it moves from one kind of gateway to the other. One with static routes
  # does not move: AWS wants the routes deleted first. Under another key it is deleted with them, and made again.
  connections = {
    for name, connection in var.connections :
    join(" ", var.transit_gateway != null && length(connection.static_routes) > 0 ? [name, "static"] : [name]) =>
    merge(connection, { name = name })
  }
}

resource "aws_vpn_connection" "this" {
  for_each = local.connections

  type                = "ipsec.1"
  vpn_gateway_id      = var.vpn_gateway_id
  transit_gateway_id  = one(var.transit_gateway[*].id)
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

  tags = merge(var.tags, each.value.tags, { Name = "${var.name}-${each.value.name}" })

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

# -- Static routes: on the connection, or in the transit gateway's route table ------------------------------

locals {
  static_routes = merge([
    for name, connection in local.connections : {
      for block in connection.static_routes : "${name} ${block}" => { connection = name, block = block }
    }
  ]...)

  # A transit gateway's route table has one route to a block. BGP alone spreads traffic over several connections.
  by_block = { for route in values(local.static_routes) : route.block => route.connection... }
}

resource "aws_vpn_connection_route" "this" {
  for_each = { for key, route in local.static_routes : key => route if var.transit_gateway == null }

  vpn_connection_id      = aws_vpn_connection.this[each.value.connection].id
  destination_cidr_block = each.value.block
}

resource "aws_ec2_transit_gateway_route" "this" {
  for_each = { for block, connections in local.by_block : block => sort(connections)[0] if var.transit_gateway != null }

  transit_gateway_route_table_id = var.transit_gateway.route_table
  transit_gateway_attachment_id  = aws_vpn_connection.this[each.value].transit_gateway_attachment_id
  destination_cidr_block         = each.key
}
