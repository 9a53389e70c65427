# frozen_string_literal: true

#
# Cookbook:: storage
# Recipe:: server
#
# The NFS server of a site: its disks, its exports, and a folder for everyone's home.

return if node.read('causeway', 'baking')

settings = node['storage']
server = settings['server']
name = node['causeway']['name']
exports = settings['sites'].values.flat_map { |site| site['exports'].to_a }
exports = exports.select { |each| each['node'] == name }
disks = settings['disks'].select { |disk| disk['use'] == 'nfs' }.map { |disk| disk['device'] }

base = server['path'] || Causeway::Exports.parent(exports.map { |each| each['export'] }) || '/srv'

apt_package 'nfs-kernel-server'

storage_disk 'exports' do
  devices disks
  path base
  filesystem server['filesystem']
  # Project quotas are counted from the start; limits can be set at any time.
  options server['filesystem'] == 'xfs' ? %w(noatime prjquota) : %w(noatime)
  not_if { exports.empty? }
end

directory '/etc/nfs.conf.d' do
  mode '0755'
end

template '/etc/nfs.conf.d/causeway.conf' do
  source 'nfs.conf.erb'
  mode '0644'
  variables(threads: server['threads'] || Causeway::Exports.threads(node['cpu']['total'].to_i))
  notifies :restart, 'service[nfs-server]', :delayed
end

# Version 4 needs neither a portmapper nor a monitor of locks, and clients should not find one.
%w(rpcbind.socket rpcbind.service rpc-statd.service).each do |unit|
  systemd_unit unit do
    action %i(stop mask)
  end
end

(Causeway::Exports.ours('/etc/exports.d') - exports.map { |each| each['name'] }).each do |each|
  storage_export each do
    action :remove
    notifies :run, 'execute[exportfs]', :delayed
  end
end

exports.each do |export|
  storage_export export['name'] do
    path export['export']
    clients export['clients'].to_a
    read_only export['read_only'] || false
    mountpoint base unless disks.empty?
    # As /tmp: everyone may add to it, and take their own away.
    mode '1777' unless export['read_only'] || server['homes'].include?(export['name'])
    notifies :run, 'execute[exportfs]', :delayed
  end

  if export['volumes']
    # The driver connects as root of a machine, which is mapped to `nobody` here. No other user has access: a volume is
    # seen by pods that have it mounted.
    directory "#{export['export']}/volumes" do
      owner 'nobody'
      group 'nogroup'
      mode '0700'
    end
  end

  next unless server['homes'].include?(export['name'])

  data_bag(node['base']['users_data_bag']).sort.each do |id|
    user = data_bag_item(node['base']['users_data_bag'], id)
    next if user['action'] == 'remove'

    directory "#{export['export']}/#{id}" do
      owner user['uid']
      group user['gid']
      mode '0700'
    end

    # Its project has the number of its owner.
    storage_quota "#{export['export']}/#{id}" do
      id user['uid']
      mib server['home_quota']
      mountpoint base
      not_if { disks.empty? || server['filesystem'] != 'xfs' }
    end
  end
end

deleted = exports.select { |each| each['volumes'] }.map { |each| "#{each['export']}/volumes/archived-live" }

# The driver moves deleted volumes there: it may not delete what others have written.
systemd_unit 'causeway-deleted-volumes.service' do
  content(Causeway::Exports.emptying(deleted, server['deleted_volumes_days']))
  verify true
  action deleted.empty? ? :delete : :create
end

systemd_unit 'causeway-deleted-volumes.timer' do
  content(
    'Unit' => { 'Description' => 'Volumes that were deleted some days ago' },
    'Timer' => { 'OnCalendar' => 'daily', 'RandomizedDelaySec' => '1h', 'Persistent' => 'true' },
    'Install' => { 'WantedBy' => 'timers.target' }
  )
  action deleted.empty? ? %i(stop disable delete) : %i(create enable start)
end

copies = settings['sites'].values.flat_map { |site| site['copies'].to_a }.select { |each| each['node'] == name }

apt_package 'rclone' do
  not_if { copies.empty? }
end

(Causeway::Copies.ours('/etc/systemd/system') - copies.map { |each| each['name'] }).each do |each|
  storage_copy each do
    action :remove
  end
end

copies.each do |each|
  storage_copy each['name'] do
    source each['source']
    bucket each['bucket']
    region each['region']
    prefix each['prefix']
    at each['at']
    mountpoint base unless disks.empty?
    credentials settings['mount_s3']['credentials'] if node.read('causeway', 'address')
    # Owners and modes, since rclone 1.59: Ubuntu 22.04 has an older one.
    options %w(--metadata) unless node['platform_version'] == '22.04'
  end
end

execute 'exportfs' do
  command %w(exportfs -ra)
  action :nothing
  only_if 'systemctl is-active --quiet nfs-server.service'
end

# The server is the kernel's own: a container has none.
service 'nfs-server' do
  action %i(enable start)
  not_if 'systemd-detect-virt --container --quiet'
end
