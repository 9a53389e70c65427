# One AWS region of the cluster: its network, the VPN to physical sites, machines and storage.

module "network" {
  source = "../network"

  name                = var.name
  tags                = var.tags
  block               = var.network.block
  subnets             = var.network.subnets
  nat                 = var.network.nat
  gateway_endpoints   = var.network.gateway_endpoints
  interface_endpoints = var.network.interface_endpoints
  flow_logs           = local.flow_logs
  inside              = var.network.inside
  overlay_ports       = var.network.overlay_ports
  vpn_ports           = var.network.vpn_ports
}

module "vpn_gateway" {
  source   = "../vpn_gateway"
  for_each = local.vpn_gateways

  name         = "${var.name}-vpn"
  tags         = var.tags
  vpc_id       = module.network.vpc_id
  asn          = each.value
  route_tables = module.network.route_tables
}

module "vpn_connections" {
  source   = "../vpn_connections"
  for_each = local.vpn

  name              = "${var.name}-vpn"
  tags              = var.tags
  vpn_gateway_id    = one([for gateway in module.vpn_gateway : gateway.id])
  transit_gateway   = var.transit_gateway
  customer_gateways = each.value.customer_gateways
  connections       = each.value.connections
  proposals         = each.value.proposals
  alarms            = each.value.alarms
  tunnel_keys       = var.tunnel_keys
}

# Once the virtual private gateway's module held them.
moved {
  from = module.vpn_gateway["this"].aws_customer_gateway.this
  to   = module.vpn_connections["this"].aws_customer_gateway.this
}

moved {
  from = module.vpn_gateway["this"].aws_vpn_connection.this
  to   = module.vpn_connections["this"].aws_vpn_connection.this
}

moved {
  from = module.vpn_gateway["this"].aws_vpn_connection_route.this
  to   = module.vpn_connections["this"].aws_vpn_connection_route.this
}

module "node_pool" {
  source   = "../node_pool"
  for_each = var.node_pools

  pool               = each.value
  tags               = var.tags
  subnet_ids         = module.network.routed_subnets
  image_ids          = local.image_ids
  security_group_ids = [module.network.security_groups["node"]]
  instance_profile   = var.instance_profiles["node"]
  kms_key            = var.kms_key

  # A machine whose disks it can't encrypt ends at once.
  depends_on = [aws_kms_grant.auto_scaling]
}

module "control_plane" {
  source   = "../control_plane"
  for_each = local.control_plane

  name                     = var.name
  tags                     = merge(var.tags, { role = "control-plane" })
  vpc_id                   = module.network.vpc_id
  load_balancer            = each.value.load_balancer
  port                     = each.value.port
  load_balancer_subnet_ids = local.private_subnet_ids

  masters = {
    for name, master in each.value.masters : name => {
      name          = master.name
      subnet_id     = module.network.routed_subnets[master.subnet]
      instance_type = master.instance_type
      image_id      = local.image_ids[master.image]
      root_disk     = master.root_disk
      user_data     = local.instance_user_data[name]
      tags          = master.tags
    }
  }

  security_group_ids = [
    module.network.security_groups["control-plane"],
    module.network.security_groups["ssh"],
  ]
  load_balancer_security_group_ids = [module.network.security_groups["load-balancer"]]
  instance_profile                 = var.instance_profiles["control-plane"]
  kms_key                          = var.kms_key
}

module "access" {
  source = "../access"

  name   = var.name
  tags   = var.tags
  vpc_id = module.network.vpc_id

  instances = {
    for name, instance in var.instances : name => {
      name          = instance.name
      role          = instance.role
      subnet_id     = module.network.routed_subnets[instance.subnet]
      instance_type = instance.instance_type
      image_id      = local.image_ids[instance.image]
      root_disk     = instance.root_disk
      public        = instance.public
      ssh_from      = instance.ssh_from
      user_data     = local.instance_user_data[name]
      tags          = instance.tags
    }
  }

  security_groups = {
    ssh = module.network.security_groups["ssh"]
    vpn = module.network.security_groups["vpn"]
  }
  instance_profiles = {
    for role in ["ssh-node", "access-gateway"] : role => var.instance_profiles[role]
  }
  kms_key = var.kms_key
}

module "storage" {
  source = "../storage"

  name = var.name
  tags = var.tags

  file_systems = {
    for name, system in var.storage.file_systems : name => merge(system, {
      subnet_ids = { for subnet in system.subnets : var.network.subnets[subnet].zone => module.network.subnets[subnet] }

      # Nodes and masters make people's homes, and nodes copy them at night. A pod sees its owner's home alone, so
      # that root in a pod is master of nothing else.
      root_roles = system.homes ? [var.roles["node"], var.roles["control-plane"]] : []
    })
  }
  security_group_ids = [module.network.security_groups["efs"]]
  client_roles       = [for role in ["node", "control-plane", "ssh-node"] : var.roles[role]]
  root_roles         = [var.roles["ssh-node"]]
  buckets            = var.storage.buckets
  kms_key            = var.kms_key
}
