# frozen_string_literal: true

provides :storage_quota
unified_mode true

description 'The most that a folder of an XFS file system may hold: a project of its own (xfs_quota(8)).'

property :directory, String,
  name_property: true,
  description: 'The folder, with all that is in it and will be'

property :id, Integer,
  required: true,
  callbacks: { 'is 1 or more' => ->(id) { id.positive? } },
  description: "The project's number; one folder a number"

property :mib, [Integer, nil],
  default: nil,
  description: 'The most it may hold, MiB; nil: no limit'

property :mountpoint, String,
  required: true,
  description: 'Where the file system is mounted, with `prjquota`'

action :create, description: 'Count the folder as a project, and limit it.' do
  # What is in the folder already counts too: it is walked through once.
  execute "project #{new_resource.id} is #{new_resource.directory}" do
    command ['xfs_quota', '-x', '-c', "project -s -p #{new_resource.directory} #{new_resource.id}",
             new_resource.mountpoint,]
    not_if { Causeway::Quotas.project(new_resource.directory) == new_resource.id }
  end

  execute "limit of #{new_resource.directory}" do
    command ['xfs_quota', '-x', '-c', "limit -p bhard=#{new_resource.mib.to_i}m #{new_resource.id}",
             new_resource.mountpoint,]
    not_if { Causeway::Quotas.limit(new_resource.mountpoint, new_resource.id) == new_resource.mib.to_i }
  end
end
