# frozen_string_literal: true

name             'gpu'
maintainer       'The Causeway authors'
license          'Apache-2.0'
description      'NVIDIA GPUs, from Kepler to Blackwell: driver, container toolkit, metrics, and a health check'
version          '0.1.0'
chef_version     '>= 18.0'
supports         'ubuntu', '>= 22.04'
supports         'debian', '>= 12.0'

depends          'base', '~> 0.1'
