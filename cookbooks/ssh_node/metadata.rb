# frozen_string_literal: true

name             'ssh_node'
maintainer       'The Causeway authors'
license          'Apache-2.0'
description      'A node that people log in to: homes, limits, GPUs, long-running sessions'
version          '0.1.0'
chef_version     '>= 18.0'
supports         'ubuntu', '>= 22.04'
supports         'debian', '>= 12.0'

depends 'base', '~> 0.1'
