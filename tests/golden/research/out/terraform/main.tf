# The cluster research, environment research.
# Rendered from its spec: change that, not this. Values are in terraform.tfvars.json.

# -- Rights of machines, the same in every region ----------------------------------------------------------

module "identity" {
  source    = "./modules/identity"
  providers = { aws = aws.us_west_2 }

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

module "us_west_2" {
  source    = "./modules/region"
  providers = { aws = aws.us_west_2 }

  name              = var.regions.us_west_2.name
  tags              = merge(var.tags, { site = "us-west-2" })
  network           = var.regions.us_west_2.network
  overlay           = var.regions.us_west_2.overlay
  vpn               = var.regions.us_west_2.vpn
  tunnel_keys       = var.tunnel_keys
  images            = var.regions.us_west_2.images
  instance_profiles = module.identity.instance_profiles
  roles             = module.identity.roles
  kms_key           = var.regions.us_west_2.kms_key
  node_pools        = var.regions.us_west_2.node_pools
  control_plane     = var.regions.us_west_2.control_plane
  instances         = var.regions.us_west_2.instances
  storage           = var.regions.us_west_2.storage
}

module "us_east_1" {
  source    = "./modules/region"
  providers = { aws = aws.us_east_1 }

  name              = var.regions.us_east_1.name
  tags              = merge(var.tags, { site = "us-east-1" })
  network           = var.regions.us_east_1.network
  overlay           = var.regions.us_east_1.overlay
  vpn               = var.regions.us_east_1.vpn
  tunnel_keys       = var.tunnel_keys
  images            = var.regions.us_east_1.images
  instance_profiles = module.identity.instance_profiles
  roles             = module.identity.roles
  kms_key           = var.regions.us_east_1.kms_key
  node_pools        = var.regions.us_east_1.node_pools
  control_plane     = var.regions.us_east_1.control_plane
  instances         = var.regions.us_east_1.instances
  storage           = var.regions.us_east_1.storage
}

module "eu_west_1" {
  source    = "./modules/region"
  providers = { aws = aws.eu_west_1 }

  name              = var.regions.eu_west_1.name
  tags              = merge(var.tags, { site = "eu-west-1" })
  network           = var.regions.eu_west_1.network
  overlay           = var.regions.eu_west_1.overlay
  vpn               = var.regions.eu_west_1.vpn
  tunnel_keys       = var.tunnel_keys
  images            = var.regions.eu_west_1.images
  instance_profiles = module.identity.instance_profiles
  roles             = module.identity.roles
  kms_key           = var.regions.eu_west_1.kms_key
  node_pools        = var.regions.eu_west_1.node_pools
  control_plane     = var.regions.eu_west_1.control_plane
  instances         = var.regions.eu_west_1.instances
  storage           = var.regions.eu_west_1.storage
}

# -- Peerings: every region reaches every other ------------------------------------------------------------

module "peering_eu_west_1_us_east_1" {
  source = "./modules/peering"
  providers = {
    aws.requester = aws.eu_west_1
    aws.accepter  = aws.us_east_1
  }

  name      = "research-eu-west-1-us-east-1"
  tags      = var.tags
  requester = module.eu_west_1.network
  accepter  = module.us_east_1.network
}

module "peering_eu_west_1_us_west_2" {
  source = "./modules/peering"
  providers = {
    aws.requester = aws.eu_west_1
    aws.accepter  = aws.us_west_2
  }

  name      = "research-eu-west-1-us-west-2"
  tags      = var.tags
  requester = module.eu_west_1.network
  accepter  = module.us_west_2.network
}

module "peering_us_east_1_us_west_2" {
  source = "./modules/peering"
  providers = {
    aws.requester = aws.us_east_1
    aws.accepter  = aws.us_west_2
  }

  name      = "research-us-east-1-us-west-2"
  tags      = var.tags
  requester = module.us_east_1.network
  accepter  = module.us_west_2.network
}

# -- Web identity: who may use which folder of which bucket, by tokens of the cluster ----------------------

module "web_identity" {
  source    = "./modules/web_identity"
  providers = { aws = aws.us_west_2 }

  tags     = var.tags
  issuer   = var.web_identity.issuer
  store    = var.web_identity.store
  volumes  = var.web_identity.volumes
  roles    = var.web_identity.roles
  tracking = var.web_identity.tracking
}

# -- Tracking: MLflow's database ---------------------------------------------------------------------------

module "tracking_database" {
  source    = "./modules/tracking_database"
  providers = { aws = aws.us_west_2 }

  name       = var.tracking_database.name
  tags       = merge(var.tags, var.tracking_database.tags)
  vpc_id     = module.us_west_2.network.vpc_id
  subnet_ids = [for name in var.tracking_database.subnets : module.us_west_2.network.subnets[name]]
  client_security_groups = {
    for role in ["control-plane", "node"] : role => module.us_west_2.network.security_groups[role]
  }

  instance_class    = var.tracking_database.instance_class
  storage_gib       = var.tracking_database.storage_gib
  storage_limit_gib = var.tracking_database.storage_limit_gib
  multi_az          = var.tracking_database.multi_az
  backup_days       = var.tracking_database.backup_days
  password          = var.tracking_password
  kms_key           = var.tracking_database.kms_key
}

# -- Names -------------------------------------------------------------------------------------------------

module "dns" {
  source    = "./modules/dns"
  providers = { aws = aws.us_west_2 }

  tags = var.tags
  zone = var.dns.zone
  ttl  = var.dns.ttl

  primary_vpc = { id = module.us_west_2.network.vpc_id, region = "us-west-2" }
  vpcs = {
    us_east_1 = { id = module.us_east_1.network.vpc_id, region = "us-east-1" }
    eu_west_1 = { id = module.eu_west_1.network.vpc_id, region = "eu-west-1" }
  }

  records = merge(
    var.dns.records,
    module.us_west_2.records,
    module.us_east_1.records,
    module.eu_west_1.records,
  )
  aliases = {
    api = {
      name           = var.dns.api
      target         = module.us_west_2.load_balancer.dns_name
      target_zone_id = module.us_west_2.load_balancer.zone_id
    }
  }

  public = var.dns.public
  public_records = merge(
    var.dns.public_records,
    module.us_west_2.public_records,
    module.us_east_1.public_records,
    module.eu_west_1.public_records,
  )
}
