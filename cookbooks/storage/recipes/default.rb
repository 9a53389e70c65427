# frozen_string_literal: true

#
# Cookbook:: storage
# Recipe:: default
#
# What a machine mounts: scratch space on its own disks, and what its site mounts. A bake brings the programs
# for every site's mounts and mounts nothing.

settings = node['storage']
baking = node.read('causeway', 'baking')
site = settings['sites'][node.read('causeway', 'site')] || {}
mounts = (site['mounts'] || []).map(&:to_h)
wanted = baking ? settings['sites'].values.flat_map { |each| each['mounts'].to_a } : mounts
kinds = wanted.map { |each| each['kind'] }

apt_package 'nfs-common' if kinds.include?('nfs')

if kinds.include?('efs')
  efs = settings['efs_utils']
  version = efs['version'] || node.read('software', 'amazon-efs-utils', 'version')

  base_apt_source 'amazon-efs-utils' do
    uri efs['uri']
    suites efs['suites']
    components efs['components'] if efs['components']
    key_url efs['key_url'] if efs['key_url']
    key_path efs['key_path']
    key_checksum efs['key_checksum'] if efs['key_checksum']
    pin_packages ['amazon-efs-utils']
    pin_version "#{version}-*" if version
  end

  apt_package 'amazon-efs-utils' do
    action((version && !Causeway::Place.first_boot?(node)) ? :upgrade : :install)
  end
end

if kinds.include?('s3')
  s3 = settings['mount_s3'].to_h.merge(node.read('software', 'mountpoint-s3').to_h.compact)
  arm = node['kernel']['machine'] == 'aarch64'

  storage_package 'mount-s3' do
    version s3['version']
    url format(
      s3['url'],
      version: s3['version'],
      release_arch: arm ? 'arm64' : 'x86_64',
      arch: arm ? 'arm64' : 'amd64',
      machine: node['kernel']['machine']
    )
    checksum s3['sha256'][arm ? 'arm64' : 'amd64']
    key_url s3['key_url']
    key_fingerprint s3['key_fingerprint']
  end
end

return if baking

scratch = settings['scratch']
listed = settings['disks'].select { |disk| disk['use'] == 'scratch' }.map { |disk| disk['device'] }
# A physical machine says which of its disks are whose. In the cloud, what is blank at first was asked for as
# scratch; once the machine is a node, a blank disk may be the volume of a pod.
discover = scratch['discover'].nil? ? node.read('causeway', 'address').nil? : scratch['discover']
node_already = ::File.exist?('/etc/kubernetes/kubelet.conf')
discover &&= listed.empty? && !node_already

storage_disk 'scratch' do
  devices lazy { discover ? Causeway::Disks.blank(Causeway::Disks.tree) : listed }
  path scratch['path']
  filesystem scratch['filesystem']
  mode scratch['mode']
  # A node whose disk has failed continues without scratch space, and is tainted. Before a machine is a node, somebody
  # is there who reads the error.
  ignore_failure node_already
end

cookbook_file '/usr/local/sbin/causeway-scratch' do
  source 'causeway-scratch'
  mode '0755'
end

has_scratch = -> { !listed.empty? || !Causeway::Disks.labelled('scratch').nil? }
say_so = "/usr/local/sbin/causeway-scratch #{scratch['path']} #{scratch['feature']}"

systemd_unit 'causeway-scratch.service' do
  content(
    'Unit' => {
      'Description' => 'Whether scratch space is mounted',
      'After' => "#{Causeway::MountUnits.escape(scratch['path'])}.mount",
      'Before' => 'kubelet.service',
    },
    'Service' => {
      'Type' => 'oneshot',
      'ExecStart' => say_so,
    },
    'Install' => { 'WantedBy' => 'multi-user.target' }
  )
  verify true
  action %i(create enable)
  only_if(&has_scratch)
end

# At each boot, and where it has changed since.
execute say_so do
  only_if(&has_scratch)
  not_if "mountpoint --quiet #{scratch['path']} && test ! -e #{scratch['feature']}"
end

(Causeway::MountUnits.ours('/etc/systemd/system') - mounts.map { |mount| mount['path'] }).each do |path|
  storage_mount path do
    action :remove
  end
end

# A file system that has yet to be made has no id.
ready, missing = mounts.partition { |mount| mount['kind'] != 'efs' || mount['file_system'] }

log 'mounts that wait for their file systems' do
  message "No file system yet for #{missing.map { |mount| mount['path'] }.join(', ')}"
  level :warn
  not_if { missing.empty? }
end

credentials = { 'AWS_SHARED_CREDENTIALS_FILE' => settings['mount_s3']['credentials'] }
# A machine in a rack has none in AWS.
role = node.read('causeway', 'address').nil?

# An outer path before one inside of it.
ready.sort_by { |mount| mount['path'] }.each do |mount|
  source, kind, flags =
    Causeway::MountUnits.parts(mount, settings['options'].to_h, node.read('causeway', 'fqdn'), role)

  storage_mount mount['path'] do
    what source
    type kind
    options flags
    environment credentials if mount['kind'] == 's3' && !role
    timeout settings['mount_timeout']
  end
end
