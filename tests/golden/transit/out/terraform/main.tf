# The cluster transit, environment transit.
# Rendered from its spec: change that, not this. Values are in terraform.tfvars.json.

# -- Rights of machines, the same in every region ----------------------------------------------------------

module "identity" {
  source    = "./modules/identity"
  providers = { aws = aws.main }

  name           = var.environment
  tags           = var.tags
  cluster        = var.identity.cluster
  secrets_prefix = var.identity.secrets_prefix
  regions        = var.identity.regions
  buckets        = var.identity.buckets
  snapshots      = var.identity.snapshots
  audit_log      = var.identity.audit_log
  volumes_region = var.identity.volumes_region
  kms_keys       = var.identity.kms_keys
}

# -- Regions, in the order in which work overflows ---------------------------------------------------------

module "main" {
  source    = "./modules/region"
  providers = { aws = aws.main }

  name              = var.regions.main.name
  tags              = merge(var.tags, { site = "main" })
  network           = var.regions.main.network
  overlay           = var.regions.main.overlay
  vpn               = var.regions.main.vpn
  tunnel_keys       = var.tunnel_keys
  images            = var.regions.main.images
  instance_profiles = module.identity.instance_profiles
  roles             = module.identity.roles
  kms_key           = var.regions.main.kms_key
  node_pools        = var.regions.main.node_pools
  control_plane     = var.regions.main.control_plane
  instances         = var.regions.main.instances
  storage           = var.regions.main.storage
  transit_gateway   = module.transit_gateway_main
}

module "far" {
  source    = "./modules/region"
  providers = { aws = aws.far }

  name              = var.regions.far.name
  tags              = merge(var.tags, { site = "far" })
  network           = var.regions.far.network
  overlay           = var.regions.far.overlay
  vpn               = var.regions.far.vpn
  tunnel_keys       = var.tunnel_keys
  images            = var.regions.far.images
  instance_profiles = module.identity.instance_profiles
  roles             = module.identity.roles
  kms_key           = var.regions.far.kms_key
  node_pools        = var.regions.far.node_pools
  control_plane     = var.regions.far.control_plane
  instances         = var.regions.far.instances
  storage           = var.regions.far.storage
  transit_gateway   = module.transit_gateway_far
}

module "farther" {
  source    = "./modules/region"
  providers = { aws = aws.farther }

  name              = var.regions.farther.name
  tags              = merge(var.tags, { site = "farther" })
  network           = var.regions.farther.network
  overlay           = var.regions.farther.overlay
  vpn               = var.regions.farther.vpn
  tunnel_keys       = var.tunnel_keys
  images            = var.regions.farther.images
  instance_profiles = module.identity.instance_profiles
  roles             = module.identity.roles
  kms_key           = var.regions.farther.kms_key
  node_pools        = var.regions.farther.node_pools
  control_plane     = var.regions.farther.control_plane
  instances         = var.regions.farther.instances
  storage           = var.regions.farther.storage
}

# -- Regions that left the spec, until the state holds nothing of them -------------------------------------
# A module without instances: what is in the state goes, in the order of its dependencies, and prevent_destroy holds.

module "oregon" {
  source    = "./modules/region"
  for_each  = toset([])
  providers = { aws = aws.oregon }

  name              = null
  network           = null
  images            = null
  instance_profiles = null
  roles             = null
}

# -- Transit gateways: one a region, joined by peerings ----------------------------------------------------

module "transit_gateway_main" {
  source    = "./modules/transit_gateway"
  providers = { aws = aws.main }

  name         = var.regions.main.name
  tags         = merge(var.tags, { site = "main" })
  asn          = var.regions.main.transit_gateway.asn
  vpc_id       = module.main.network.vpc_id
  subnets      = { for name in var.regions.main.transit_gateway.subnets : name => module.main.network.subnets[name] }
  route_tables = module.main.network.route_tables
  lans         = var.regions.main.transit_gateway.lans
}

module "transit_gateway_far" {
  source    = "./modules/transit_gateway"
  providers = { aws = aws.far }

  name         = var.regions.far.name
  tags         = merge(var.tags, { site = "far" })
  asn          = var.regions.far.transit_gateway.asn
  vpc_id       = module.far.network.vpc_id
  subnets      = { for name in var.regions.far.transit_gateway.subnets : name => module.far.network.subnets[name] }
  route_tables = module.far.network.route_tables
  lans         = var.regions.far.transit_gateway.lans
}

module "transit_gateway_farther" {
  source    = "./modules/transit_gateway"
  providers = { aws = aws.farther }

  name         = var.regions.farther.name
  tags         = merge(var.tags, { site = "farther" })
  asn          = var.regions.farther.transit_gateway.asn
  vpc_id       = module.farther.network.vpc_id
  subnets      = { for name in var.regions.farther.transit_gateway.subnets : name => module.farther.network.subnets[name] }
  route_tables = module.farther.network.route_tables
  lans         = var.regions.farther.transit_gateway.lans
}

module "transit_peering_far_farther" {
  source = "./modules/transit_peering"
  providers = {
    aws.requester = aws.far
    aws.accepter  = aws.farther
  }

  name = "transit-far-farther"
  tags = var.tags
  requester = {
    transit_gateway_id  = module.transit_gateway_far.id
    transit_route_table = module.transit_gateway_far.route_table
    block               = var.regions.far.transit_gateway.block
    lans                = var.regions.far.transit_gateway.behind.farther
    route_tables        = module.far.network.route_tables
  }
  accepter = {
    transit_gateway_id  = module.transit_gateway_farther.id
    transit_route_table = module.transit_gateway_farther.route_table
    block               = var.regions.farther.transit_gateway.block
    lans                = var.regions.farther.transit_gateway.behind.far
    route_tables        = module.farther.network.route_tables
  }
}

module "transit_peering_far_main" {
  source = "./modules/transit_peering"
  providers = {
    aws.requester = aws.far
    aws.accepter  = aws.main
  }

  name = "transit-far-main"
  tags = var.tags
  requester = {
    transit_gateway_id  = module.transit_gateway_far.id
    transit_route_table = module.transit_gateway_far.route_table
    block               = var.regions.far.transit_gateway.block
    lans                = var.regions.far.transit_gateway.behind.main
    route_tables        = module.far.network.route_tables
  }
  accepter = {
    transit_gateway_id  = module.transit_gateway_main.id
    transit_route_table = module.transit_gateway_main.route_table
    block               = var.regions.main.transit_gateway.block
    lans                = var.regions.main.transit_gateway.behind.far
    route_tables        = module.main.network.route_tables
  }
}

module "transit_peering_farther_main" {
  source = "./modules/transit_peering"
  providers = {
    aws.requester = aws.farther
    aws.accepter  = aws.main
  }

  name = "transit-farther-main"
  tags = var.tags
  requester = {
    transit_gateway_id  = module.transit_gateway_farther.id
    transit_route_table = module.transit_gateway_farther.route_table
    block               = var.regions.farther.transit_gateway.block
    lans                = var.regions.farther.transit_gateway.behind.main
    route_tables        = module.farther.network.route_tables
  }
  accepter = {
    transit_gateway_id  = module.transit_gateway_main.id
    transit_route_table = module.transit_gateway_main.route_table
    block               = var.regions.main.transit_gateway.block
    lans                = var.regions.main.transit_gateway.behind.farther
    route_tables        = module.main.network.route_tables
  }
}

# -- Names -------------------------------------------------------------------------------------------------

module "dns" {
  source    = "./modules/dns"
  providers = { aws = aws.main }

  tags = var.tags
  zone = var.dns.zone
  ttl  = var.dns.ttl

  primary_vpc = { id = module.main.network.vpc_id, region = "eu-central-1" }
  vpcs = {
    far     = { id = module.far.network.vpc_id, region = "us-east-2" }
    farther = { id = module.farther.network.vpc_id, region = "ap-southeast-2" }
  }

  records = merge(
    var.dns.records,
    module.main.records,
    module.far.records,
    module.farther.records,
  )
  aliases = {
    api = {
      name           = var.dns.api
      target         = module.main.load_balancer.dns_name
      target_zone_id = module.main.load_balancer.zone_id
    }
  }

  public = var.dns.public
  public_records = merge(
    var.dns.public_records,
    module.main.public_records,
    module.far.public_records,
    module.farther.public_records,
  )
}
