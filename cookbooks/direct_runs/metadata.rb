# frozen_string_literal: true

name             'direct_runs'
maintainer       'The Causeway authors'
license          'Apache-2.0'
description      'A machine that takes runs of causeway run --on: lingering, podman, uv, a firewall'
version          '0.1.0'
chef_version     '>= 18.0'
supports         'ubuntu', '>= 22.04'
supports         'debian', '>= 12.0'

depends 'base', '~> 0.1'
