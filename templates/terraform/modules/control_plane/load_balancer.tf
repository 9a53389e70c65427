resource "aws_lb" "this" {
  #checkov:skip=CKV_AWS_150:It holds no data, and protection would have to be lifted by hand before any destroy.
  #checkov:skip=CKV_AWS_91:A network load balancer logs TLS listeners alone, and TLS ends at the masters.
  name               = var.load_balancer
  load_balancer_type = "network"
  internal           = true
  subnets            = values(var.load_balancer_subnet_ids)
  security_groups    = var.load_balancer_security_group_ids

  # With fewer masters than zones, an address in a zone without one must still answer.
  enable_cross_zone_load_balancing = true

  tags = merge(var.tags, { Name = var.load_balancer })

  # Every node and person reaches the API through it. The provider (5.100) replaces a network load balancer that
  # loses a subnet; one that gains a subnet is changed in place.
  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_lb_target_group" "api" {
  name        = var.load_balancer
  vpc_id      = var.vpc_id
  target_type = "instance"
  protocol    = "TCP"
  port        = var.port

  # A master is a client of the address it serves. With the client's address kept, a connection that comes back to
  # its own sender is dropped there, and one of three from a master would time out (User Guide for Network
  # Load Balancers, NAT loopback).
  preserve_client_ip = false

  # Watches stay open for hours; a master that leaves has its connections closed, so that clients go to another.
  deregistration_delay   = 60
  connection_termination = true

  health_check {
    protocol            = "TCP"
    port                = "traffic-port"
    interval            = 10
    healthy_threshold   = 3
    unhealthy_threshold = 3
  }

  tags = merge(var.tags, { Name = var.load_balancer })
}

resource "aws_lb_listener" "api" {
  load_balancer_arn = aws_lb.this.arn
  protocol          = "TCP"
  port              = var.port

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.api.arn
  }

  tags = merge(var.tags, { Name = "${var.name}-api" })
}

resource "aws_lb_target_group_attachment" "master" {
  for_each = aws_instance.master

  target_group_arn = aws_lb_target_group.api.arn
  target_id        = each.value.id
  port             = var.port
}
