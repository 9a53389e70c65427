# Node pools: launch templates, launch configurations, groups, hooks, warm pools, placement groups.

data "aws_ami" "ubuntu" {
  most_recent = true
  owners      = ["099720109477"]
  filter {
    name   = "name"
    values = ["ubuntu/images/hvm-ssd*/ubuntu-jammy-22.04-amd64-server-*"]
  }
}

resource "aws_vpc" "this" {
  cidr_block = "10.60.0.0/16"
}

resource "aws_subnet" "this" {
  for_each          = { us-west-2a = 0, us-west-2b = 1 }
  vpc_id            = aws_vpc.this.id
  cidr_block        = cidrsubnet(aws_vpc.this.cidr_block, 8, each.value)
  availability_zone = each.key
}

resource "aws_security_group" "this" {
  name   = "nodes"
  vpc_id = aws_vpc.this.id
}

resource "aws_iam_role" "this" {
  name = "nodes"
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "sts:AssumeRole", Principal = { Service = "ec2.amazonaws.com" } }]
  })
}

resource "aws_iam_instance_profile" "this" {
  name = "nodes"
  role = aws_iam_role.this.name
}

resource "aws_placement_group" "this" {
  for_each = { cluster = null, partition = 3, spread = null }
  name     = "nodes-${each.key}"
  strategy = each.key

  partition_count = each.value
  spread_level    = each.key == "spread" ? "rack" : null
  tags            = { Name = each.key }
}

resource "aws_launch_template" "cpu" {
  name                   = "cpu"
  description            = "CPU nodes"
  image_id               = data.aws_ami.ubuntu.id
  instance_type          = "m6i.large"
  update_default_version = true
  ebs_optimized          = true
  user_data              = base64encode("#cloud-config\n{}\n")
  vpc_security_group_ids = [aws_security_group.this.id]
  key_name               = aws_key_pair.this.key_name
  iam_instance_profile {
    arn = aws_iam_instance_profile.this.arn
  }
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 2
    instance_metadata_tags      = "enabled"
  }
  monitoring {
    enabled = true
  }
  instance_initiated_shutdown_behavior = "terminate"
  block_device_mappings {
    device_name = "/dev/sda1"
    ebs {
      volume_type           = "gp3"
      volume_size           = 60
      iops                  = 4000
      throughput            = 250
      encrypted             = "true"
      delete_on_termination = "true"
    }
  }
  block_device_mappings {
    device_name = "/dev/sdb"
    ebs {
      volume_type           = "gp3"
      volume_size           = 200
      encrypted             = "true"
      delete_on_termination = "true"
    }
  }
  block_device_mappings {
    device_name  = "/dev/sdc"
    virtual_name = "ephemeral0"
  }
  dynamic "tag_specifications" {
    for_each = toset(["instance", "volume", "network-interface"])
    content {
      resource_type = tag_specifications.value
      tags          = { Name = "cpu", role = "node" }
    }
  }
  private_dns_name_options {
    hostname_type                     = "resource-name"
    enable_resource_name_dns_a_record = true
  }
  maintenance_options {
    auto_recovery = "default"
  }
  tags = { Name = "cpu" }
}

resource "aws_launch_template" "efa" {
  name          = "efa"
  image_id      = data.aws_ami.ubuntu.id
  instance_type = "p4d.24xlarge"
  iam_instance_profile {
    name = aws_iam_instance_profile.this.name
  }
  dynamic "network_interfaces" {
    for_each = range(4)
    content {
      device_index                = network_interfaces.value == 0 ? 0 : 1
      network_card_index          = network_interfaces.value
      interface_type              = network_interfaces.value == 0 ? "efa" : "efa-only"
      security_groups             = [aws_security_group.this.id]
      delete_on_termination       = true
      associate_public_ip_address = network_interfaces.value == 0 ? false : null
    }
  }
  placement {
    group_name = aws_placement_group.this["cluster"].name
    tenancy    = "default"
  }
  capacity_reservation_specification {
    capacity_reservation_preference = "open"
  }
  metadata_options {
    http_endpoint = "enabled"
    http_tokens   = "required"
  }
  cpu_options {
    core_count       = 48
    threads_per_core = 1
  }
  instance_market_options {
    market_type = "spot"
    spot_options {
      spot_instance_type             = "one-time"
      instance_interruption_behavior = "terminate"
      max_price                      = "10.5"
    }
  }
}

resource "aws_launch_template" "reserved" {
  name          = "reserved"
  image_id      = data.aws_ami.ubuntu.id
  instance_type = "p5.48xlarge"
  capacity_reservation_specification {
    capacity_reservation_target {
      capacity_reservation_id = "cr-0123456789abcdef0"
    }
  }
  enclave_options {
    enabled = false
  }
  hibernation_options {
    configured = false
  }
  credit_specification {
    cpu_credits = "standard"
  }
}

resource "aws_launch_template" "block" {
  name          = "capacity-block"
  image_id      = data.aws_ami.ubuntu.id
  instance_type = "p5.48xlarge"
  instance_market_options {
    market_type = "capacity-block"
  }
}

resource "aws_key_pair" "this" {
  key_name   = "nodes"
  public_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGXpXkBcIHQ3s5jJ6wGmzxcCSyQ7PwuNJOEv2BzMkZmU someone"
}

resource "aws_launch_configuration" "this" {
  name_prefix                 = "old-"
  image_id                    = data.aws_ami.ubuntu.id
  instance_type               = "p3.2xlarge"
  iam_instance_profile        = aws_iam_instance_profile.this.name
  security_groups             = [aws_security_group.this.id]
  key_name                    = aws_key_pair.this.key_name
  user_data_base64            = base64encode("#cloud-config\n{}\n")
  associate_public_ip_address = false
  ebs_optimized               = true
  enable_monitoring           = true
  spot_price                  = "1.5"
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 2
  }
  root_block_device {
    volume_type           = "gp3"
    volume_size           = 60
    iops                  = 3000
    throughput            = 125
    encrypted             = true
    delete_on_termination = true
  }
  ebs_block_device {
    device_name           = "/dev/sdb"
    volume_type           = "gp3"
    volume_size           = 100
    encrypted             = true
    delete_on_termination = true
  }
  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_autoscaling_group" "mixed" {
  name                      = "mixed"
  min_size                  = 1
  max_size                  = 10
  desired_capacity          = 3
  desired_capacity_type     = "units"
  vpc_zone_identifier       = [for subnet in aws_subnet.this : subnet.id]
  health_check_type         = "EC2"
  health_check_grace_period = 300
  default_cooldown          = 60
  default_instance_warmup   = 120
  capacity_rebalance        = true
  protect_from_scale_in     = true
  suspended_processes       = ["AZRebalance", "ReplaceUnhealthy"]
  termination_policies      = ["OldestLaunchTemplate", "Default"]
  enabled_metrics           = ["GroupDesiredCapacity", "GroupInServiceInstances"]
  metrics_granularity       = "1Minute"
  max_instance_lifetime     = 604800
  wait_for_capacity_timeout = "2m"
  mixed_instances_policy {
    instances_distribution {
      on_demand_base_capacity                  = 1
      on_demand_percentage_above_base_capacity = 25
      on_demand_allocation_strategy            = "prioritized"
      spot_allocation_strategy                 = "price-capacity-optimized"
    }
    launch_template {
      launch_template_specification {
        launch_template_id = aws_launch_template.cpu.id
        version            = aws_launch_template.cpu.latest_version
      }
      override {
        instance_type     = "m6i.large"
        weighted_capacity = "1"
      }
      override {
        instance_type     = "m6i.xlarge"
        weighted_capacity = "2"
      }
    }
  }
  instance_refresh {
    strategy = "Rolling"
    preferences {
      min_healthy_percentage = 90
      instance_warmup        = 120
      skip_matching          = true
    }
  }
  dynamic "tag" {
    for_each = {
      "Name"                                                        = true
      "k8s.io/cluster-autoscaler/enabled"                           = false
      "k8s.io/cluster-autoscaler/node-template/label/example.org/a" = false
    }
    content {
      key                 = tag.key
      value               = "mixed"
      propagate_at_launch = tag.value
    }
  }
  lifecycle {
    ignore_changes = [desired_capacity]
  }
}

resource "aws_autoscaling_group" "warm" {
  name                = "warm"
  min_size            = 0
  max_size            = 4
  desired_capacity    = 0
  vpc_zone_identifier = [aws_subnet.this["us-west-2a"].id]
  launch_template {
    id      = aws_launch_template.cpu.id
    version = "$Latest"
  }
  warm_pool {
    pool_state                  = "Stopped"
    min_size                    = 1
    max_group_prepared_capacity = 2
    instance_reuse_policy {
      reuse_on_scale_in = true
    }
  }
  initial_lifecycle_hook {
    name                 = "joining"
    lifecycle_transition = "autoscaling:EC2_INSTANCE_LAUNCHING"
    heartbeat_timeout    = 600
    default_result       = "ABANDON"
  }
  tag {
    key                 = "Name"
    value               = "warm"
    propagate_at_launch = true
  }
}

resource "aws_autoscaling_group" "old" {
  name                 = "old"
  min_size             = 0
  max_size             = 4
  desired_capacity     = 1
  vpc_zone_identifier  = [for subnet in aws_subnet.this : subnet.id]
  launch_configuration = aws_launch_configuration.this.name
  placement_group      = aws_placement_group.this["partition"].id
  force_delete         = true
}

resource "aws_autoscaling_lifecycle_hook" "drain" {
  for_each = {
    mixed = aws_autoscaling_group.mixed.name
    old   = aws_autoscaling_group.old.name
  }
  name                   = "drain"
  autoscaling_group_name = each.value
  lifecycle_transition   = "autoscaling:EC2_INSTANCE_TERMINATING"
  heartbeat_timeout      = 900
  default_result         = "CONTINUE"
}
