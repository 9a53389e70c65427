# frozen_string_literal: true

name             'base'
maintainer       'The Causeway authors'
license          'Apache-2.0'
description      'What every machine of a cluster has: people, SSH, time, updates, limits, metrics'
version          '0.1.0'
chef_version     '>= 18.0'
supports         'ubuntu', '>= 22.04'
supports         'debian', '>= 12.0'
