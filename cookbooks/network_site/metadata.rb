# frozen_string_literal: true

name             'network_site'
maintainer       'The Causeway authors'
license          'Apache-2.0'
description      'The gateway of a site: strongSwan, FRR, nftables, and the tree that has them carry tunnels'
version          '0.1.0'
chef_version     '>= 18.0'
supports         'ubuntu', '>= 22.04'
supports         'debian', '>= 12.0'

depends 'base', '~> 0.1'
