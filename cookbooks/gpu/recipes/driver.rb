# frozen_string_literal: true

#
# Cookbook:: gpu
# Recipe:: driver
#
# The driver, built for every kernel that is here, whether or not there is a GPU: images have none.

gpu = node['gpu']
branch = gpu['driver']
objection = Causeway::Driver.objection(
  branch: branch, family: gpu['family'], open: gpu['open_kernel_modules']
)
raise ArgumentError, objection if objection

# It takes the GPUs first, and can't be unloaded while the console is on one of them.
file '/etc/modprobe.d/blacklist-nouveau.conf' do
  content "blacklist nouveau\noptions nouveau modeset=0\n"
  mode '0644'
  notifies :run, 'execute[update-initramfs for nouveau]', :delayed
end

execute 'update-initramfs for nouveau' do
  command %w(update-initramfs -u -k all)
  only_if { ::File.executable?('/usr/sbin/update-initramfs') }
  action :nothing
end

include_recipe 'gpu::repository' if gpu['source'] == 'nvidia'

apt_preference 'nvidia-driver' do
  glob Causeway::Driver.family_of_packages.join(' ')
  pin "version #{gpu['driver_version']}-*"
  pin_priority '1001'
  action((gpu['driver_version'] && gpu['source'] == 'distribution') ? :add : :remove)
end

signed = gpu['modules'] == 'signed'

package 'headers of all kernels' do
  package_name(lazy { Causeway::Driver.headers(Causeway::Gpus.images, node['kernel']['release']) })
  not_if { signed }
  not_if 'systemd-detect-virt --container --quiet'
end

wanted = { branch: branch, open: gpu['open_kernel_modules'] }
packages = gpu['packages']
packages ||= Causeway::Driver.signed(**wanted, images: Causeway::Gpus.images) if signed
packages ||= Causeway::Driver.packages(**wanted, source: gpu['source'], platform: node['platform'])

# Without recommended packages: they are for screens. An archive's newer build of the same branch stays where it
# is until somebody names it: the libraries would no longer fit the module in memory.
apt_package packages do
  options '--no-install-recommends'
  action((gpu['driver_version'] && !Causeway::Place.first_boot?(node)) ? :upgrade : :install)
end

gpu_module branch do
  action signed ? :verify : :build
end

gpu_reboot "NVIDIA's driver"

template '/etc/systemd/system/nvidia-persistenced.service' do
  source 'nvidia-persistenced.service.erb'
  mode '0644'
  variables(user: lazy { Causeway::Gpus.account })
  notifies :run, 'execute[systemctl daemon-reload for the GPUs]', :immediately
  only_if { gpu['persistence'] }
end

execute 'systemctl daemon-reload for the GPUs' do
  command %w(systemctl daemon-reload)
  only_if { systemd? }
  action :nothing
end

service 'nvidia-persistenced' do
  action :enable
  only_if { gpu['persistence'] }
end

service 'nvidia-persistenced, now' do
  service_name 'nvidia-persistenced'
  action :start
  only_if { gpu['persistence'] && Causeway::Gpus.usable?(node) }
end
