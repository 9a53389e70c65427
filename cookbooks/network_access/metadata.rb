# frozen_string_literal: true

name             'network_access'
maintainer       'The Causeway authors'
license          'Apache-2.0'
description      'A VPN server: OpenVPN, WireGuard, nftables, dnsmasq, and the tree that has them serve laptops'
version          '0.1.0'
chef_version     '>= 18.0'
supports         'ubuntu', '>= 22.04'
supports         'debian', '>= 12.0'

depends 'base', '~> 0.1'
