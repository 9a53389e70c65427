# Little, in an order that can be broken in the middle: VPC, subnets, template, group.

resource "aws_vpc" "this" {
  cidr_block = "10.70.0.0/16"
}

resource "aws_subnet" "this" {
  for_each          = { us-west-2a = 0, us-west-2b = 1 }
  vpc_id            = aws_vpc.this.id
  cidr_block        = cidrsubnet(aws_vpc.this.cidr_block, 8, each.value)
  availability_zone = each.key
}

resource "aws_launch_template" "this" {
  name          = "pool"
  image_id      = "ami-0123456789abcdef0"
  instance_type = "p4d.24xlarge"
}

resource "aws_autoscaling_group" "this" {
  name                      = "pool"
  min_size                  = 1
  max_size                  = 2
  vpc_zone_identifier       = [for subnet in aws_subnet.this : subnet.id]
  wait_for_capacity_timeout = var.patience
  force_delete              = true
  launch_template {
    id      = aws_launch_template.this.id
    version = aws_launch_template.this.latest_version
  }
}

variable "patience" {
  type    = string
  default = "1m"
}
