# frozen_string_literal: true

# Site → {'mounts' => […], 'exports' => […]}: what a machine of that site mounts, and what its servers
# export. A mount: {'path', 'kind' => 'nfs' | 'efs' | 's3', 'name', 'read_only'}, and by its kind 'server' and
# 'export'; 'file_system' (nil until there is one), 'region', 'access_point' and 'tls'; 'bucket', 'region' and
# 'prefix'. An export: {'name', 'export' (its path), 'clients' => [blocks], 'read_only', 'volumes' (whether a driver
# of Kubernetes makes volumes in it), 'node'}. `copies`: what its
# servers copy at night: {'name', 'source', 'bucket', 'region', 'prefix', 'at', 'node'}.
default['storage']['sites'] = {}

# This machine's disks: {'device', 'use' => 'system' | 'scratch' | 'nfs'}. Only blank ones are formatted.
default['storage']['disks'] = []

# Options of mounts, by kind, and `_netdev`, `ro` and what follows from the mount itself. NFS: hard, so
# that a server that is away stops a program rather than break its files; several connections, as one fills
# no 10 Gb/s. EFS: the helper adds NFS's own.
default['storage']['options'] = {
  'nfs' => 'nfsvers=4.2,proto=tcp,hard,timeo=600,retrans=2,rsize=1048576,wsize=1048576,nconnect=8,noatime,nosuid,nodev',
  'efs' => 'noresvport,noatime,nosuid,nodev',
  's3' => 'nosuid,nodev,allow-other',
}

# Seconds that a mount may take at the first access. The boot does not wait for it.
default['storage']['mount_timeout'] = 30

# Scratch space: blank disks with `use: scratch`, several of them as one striped volume; on a cloud machine, all
# blank disks it has (instance stores, further volumes). `feature`: the file by which a node says that it is without,
# for Node Feature Discovery, which taints it.
default['storage']['scratch'] = {
  'path' => '/scratch',
  'filesystem' => 'xfs',
  'mode' => '1777',
  'discover' => nil,
  'feature' => '/etc/kubernetes/node-feature-discovery/features.d/causeway-scratch',
}

# Amazon's mount helper: no distribution has it; Amazon's own archive does. `version` is over
# node['software']['amazon-efs-utils'].
default['storage']['efs_utils'] = {
  'version' => nil,
  'uri' => "https://amazon-efs-utils.aws.com/repo/deb/#{node['platform']}/#{node['platform_version']}",
  'suites' => node['platform_version'],
  'components' => 'main',
  'key_url' => 'https://amazon-efs-utils.aws.com/efs-utils.gpg',
  'key_path' => '/etc/apt/keyrings/amazon-efs-utils.gpg',
  'key_checksum' => nil,
}

# Mountpoint for Amazon S3, a package by address; `%{version}` and `%{release_arch}` are replaced.
# With a `sha256` by architecture (amd64, arm64) it is checked by that, else by Amazon's signature.
# node['software']['mountpoint-s3'] goes over it. A machine outside of AWS has no role there: it shows what is
# in the file `credentials` (of the AWS CLI's form), which others bring.
default['storage']['mount_s3'] = {
  'version' => '1.24.0',
  'url' => 'https://s3.amazonaws.com/mountpoint-s3-release/%{version}/%{release_arch}/' \
           'mount-s3-%{version}-%{release_arch}.deb',
  'sha256' => {},
  'key_url' => 'https://s3.amazonaws.com/mountpoint-s3-release/public_keys/KEYS',
  'key_fingerprint' => '673FE4061506BB469A0EF857BE397A52B086DA5A',
  'credentials' => '/etc/causeway/secrets/aws-credentials',
}

# The NFS server. nil `path`: the folder above the exports, where disks with `use: nfs` are mounted. nil
# `threads`: four a CPU, 16 to 128. In exports that `homes` names, everyone in the users' data bag has a
# folder: a client's root is mapped to `nobody`, and could not create one. `home_quota`: the MiB that each of these may
# hold, by a project of XFS; nil: no limit. `deleted_volumes_days`: for how many days volumes that were deleted in
# Kubernetes are kept.
default['storage']['server'] = {
  'path' => nil,
  'filesystem' => 'xfs',
  'threads' => nil,
  'homes' => ['home'],
  'home_quota' => nil,
  'deleted_volumes_days' => 7,
}
