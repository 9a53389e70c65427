# frozen_string_literal: true

name             'storage'
maintainer       'The Causeway authors'
license          'Apache-2.0'
description      'The same paths everywhere: NFS, EFS and S3 mounts, scratch disks, and the NFS server'
version          '0.1.0'
chef_version     '>= 18.0'
supports         'ubuntu', '>= 22.04'
supports         'debian', '>= 12.0'

depends          'base', '~> 0.1'
