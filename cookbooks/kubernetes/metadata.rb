# frozen_string_literal: true

name             'kubernetes'
maintainer       'The Causeway authors'
license          'Apache-2.0'
description      'Kubernetes by kubeadm: the kubelet, masters, workers, and upgrades one node at a time'
version          '0.1.0'
chef_version     '>= 18.0'
supports         'ubuntu', '>= 22.04'
supports         'debian', '>= 12.0'

depends          'base', '~> 0.1'
