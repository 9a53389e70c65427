# frozen_string_literal: true

name             'container_runtime'
maintainer       'The Causeway authors'
license          'Apache-2.0'
description      'containerd for Kubernetes: its configuration, registry mirrors, and the NVIDIA runtime'
version          '0.1.0'
chef_version     '>= 18.0'
supports         'ubuntu', '>= 22.04'
supports         'debian', '>= 12.0'

depends          'base', '~> 0.1'
