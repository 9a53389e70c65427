# frozen_string_literal: true

#
# Cookbook:: gpu
# Recipe:: fabric_manager
#
# NVSwitch. Fabric manager does not start beside a driver of any other version, so the driver's decides, not the
# archive's newest.

gpu = node['gpu']
blackwell = gpu['family'] == 'blackwell'
packages = Causeway::Driver.fabric_packages(
  branch: gpu['driver'], source: gpu['source'], platform: node['platform']
)

# Debian has no fabric manager, and only NVIDIA has the subnet manager of the fourth generation of switches.
include_recipe 'gpu::repository' if blackwell || node['platform'] != 'ubuntu'

# Where the version is the driver's, the source may be another.
apt_preference 'fabric-manager' do
  glob packages.join(' ')
  pin(lazy { "version #{Causeway::Gpus.version_on_disk(gpu['driver'])}-*" })
  pin_priority '1001'
end

apt_package packages do
  options '--no-install-recommends'
  action Causeway::Place.first_boot?(node) ? :install : :upgrade
end

apt_package 'nvlsm' do
  options '--no-install-recommends'
  only_if { blackwell }
end

file '/etc/modules-load.d/nvlsm.conf' do
  content "ib_umad\n"
  mode '0644'
  only_if { blackwell }
end

gpu_same_version packages.first do
  branch gpu['driver']
end

service 'nvidia-fabricmanager' do
  action :enable
end

service 'nvidia-fabricmanager, now' do
  service_name 'nvidia-fabricmanager'
  action :start
  only_if { Causeway::Gpus.switches? && Causeway::Gpus.usable?(node) }
end
