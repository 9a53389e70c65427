# All of them as one configuration: a start of the provider costs seconds.

module "storage" {
  source = "../storage"
}

module "vpn" {
  source = "../vpn"
}

module "interconnect" {
  source = "../interconnect"
}

module "nodes" {
  source = "../nodes"
}

output "vpn" {
  value     = module.vpn
  sensitive = true
}
