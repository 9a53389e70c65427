# Pods and services, for what in the VPC is not a node of the cluster: by a machine that is one, and forwards.

locals {
  overlay_routes = merge([
    for overlay in var.overlay[*] : {
      for pair in setproduct(keys(module.network.route_tables), overlay.blocks) : join(" ", pair) => {
        table  = pair[0]
        block  = pair[1]
        router = overlay.router
      }
    }
  ]...)
}

resource "aws_route" "overlay" {
  for_each = local.overlay_routes

  route_table_id         = module.network.route_tables[each.value.table]
  destination_cidr_block = each.value.block
  network_interface_id   = module.access.network_interfaces[each.value.router]
}
