# Groups follow roles. A rule is a line in one of the tables below; its source is the inside of the cluster,
# another group, or, for the VPN's ports alone, the world. A group may hold few rules a direction (quota L-0EA8095F),
# and each block of the inside makes one of a line, so a master is in two groups: control-plane and ssh. A prefix
# list would not help: it counts by its greatest length. What the rules come to is counted from these tables before
# there is a plan (QUOTA006, infra/catalogue/security_groups.py).

locals {
  # A description cannot change on a group that is in use: AWS makes a new one.
  groups = {
    node          = "Cluster nodes: everything from inside the cluster"
    control-plane = "Kubernetes masters"
    load-balancer = "The load balancer in front of the masters"
    vpn           = "Remote access: VPN ports from anywhere"
    ssh           = "Machines with a name of their own: SSH, metrics and ping from inside the cluster"
    efs           = "EFS mount targets: NFS from inside the cluster"
  }

  # Pods, services and laptops reach nodes on any port, and with their own addresses: what may talk to what is
  # for network policies and the gateways' rules to say.
  from_inside = {
    node-all          = { group = "node", protocol = "-1", from = null, to = null }
    control-plane-api = { group = "control-plane", protocol = "tcp", from = var.api_port, to = var.api_port }
    load-balancer-api = { group = "load-balancer", protocol = "tcp", from = var.api_port, to = var.api_port }
    vpn-forwarded     = { group = "vpn", protocol = "-1", from = null, to = null }
    ssh-ssh           = { group = "ssh", protocol = "tcp", from = 22, to = 22 }
    ssh-metrics       = { group = "ssh", protocol = "tcp", from = 9100, to = 9100 }
    ssh-icmp          = { group = "ssh", protocol = "icmp", from = -1, to = -1 }
    # kube-proxy's figures, and the kubelet.
    ssh-kubelet = { group = "ssh", protocol = "tcp", from = 10249, to = 10250 }
    # Metrics of GPUs, on machines that have any.
    ssh-gpu-metrics = { group = "ssh", protocol = "tcp", from = 9400, to = 9400 }
    efs-nfs         = { group = "efs", protocol = "tcp", from = 2049, to = 2049 }
  }

  # Masters, gateways and SSH nodes are nodes too.
  overlay = {
    for name, port in var.overlay_ports : "ssh-${name}" => {
      group = "ssh", protocol = port.protocol, from = port.from, to = port.to
    }
  }

  from_group = {
    node-node = { group = "node", source = "node", protocol = "-1", from = null, to = null }
    # Clients, peers, and figures for Prometheus, which is on one of the masters.
    control-plane-etcd     = { group = "control-plane", source = "control-plane", protocol = "tcp", from = 2379, to = 2381 }
    control-plane-managers = { group = "control-plane", source = "control-plane", protocol = "tcp", from = 10257, to = 10259 }
    control-plane-balanced = { group = "control-plane", source = "load-balancer", protocol = "tcp", from = var.api_port, to = var.api_port }
  }

  to_group = {
    # Elastic Fabric Adapters bypass the kernel and need the group itself named (EC2 User Guide, EFA security group).
    node-node              = { group = "node", target = "node", protocol = "-1", from = null, to = null }
    load-balancer-balanced = { group = "load-balancer", target = "control-plane", protocol = "tcp", from = var.api_port, to = var.api_port }
  }

  to_anywhere = toset(["node", "control-plane", "vpn", "ssh"])

  inside_rules = merge([
    for name, rule in merge(local.from_inside, local.overlay) : {
      for block in var.inside : "${name}-${block}" => merge(rule, { block = block })
    }
  ]...)
}

resource "aws_security_group" "this" {
  #checkov:skip=CKV2_AWS_5:The machines, load balancer and mount targets that wear them are in other modules.
  for_each = local.groups

  name        = "${var.name}-${each.key}"
  description = each.value
  vpc_id      = aws_vpc.this.id

  tags = merge(var.tags, { Name = "${var.name}-${each.key}" })
}

resource "aws_vpc_security_group_ingress_rule" "inside" {
  for_each = local.inside_rules

  security_group_id = aws_security_group.this[each.value.group].id
  description       = "from inside the cluster"
  cidr_ipv4         = each.value.block
  ip_protocol       = each.value.protocol
  from_port         = each.value.from
  to_port           = each.value.to

  tags = merge(var.tags, { Name = each.key })
}

resource "aws_vpc_security_group_ingress_rule" "group" {
  for_each = local.from_group

  security_group_id            = aws_security_group.this[each.value.group].id
  description                  = "from ${each.value.source}"
  referenced_security_group_id = aws_security_group.this[each.value.source].id
  ip_protocol                  = each.value.protocol
  from_port                    = each.value.from
  to_port                      = each.value.to

  tags = merge(var.tags, { Name = each.key })
}

resource "aws_vpc_security_group_ingress_rule" "world" {
  for_each = var.vpn_ports

  security_group_id = aws_security_group.this["vpn"].id
  description       = "VPN from anywhere"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = each.value.protocol
  from_port         = each.value.port
  to_port           = each.value.port

  tags = merge(var.tags, { Name = each.key })
}

resource "aws_vpc_security_group_egress_rule" "group" {
  for_each = local.to_group

  security_group_id            = aws_security_group.this[each.value.group].id
  description                  = "to ${each.value.target}"
  referenced_security_group_id = aws_security_group.this[each.value.target].id
  ip_protocol                  = each.value.protocol
  from_port                    = each.value.from
  to_port                      = each.value.to

  tags = merge(var.tags, { Name = each.key })
}

resource "aws_vpc_security_group_egress_rule" "anywhere" {
  for_each = local.to_anywhere

  security_group_id = aws_security_group.this[each.key].id
  description       = "to anywhere"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"

  tags = merge(var.tags, { Name = "${each.key}-anywhere" })
}
