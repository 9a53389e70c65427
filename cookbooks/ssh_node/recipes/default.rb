# frozen_string_literal: true

#
# Cookbook:: ssh_node
# Recipe:: default
#
# Accounts, keys and who may log in are `base`; where homes are is `storage`; drivers are `gpu`.
#

package node['ssh_node']['packages'].to_a

# What makes homes, and what gives each person a slice: without the latter all sessions are sshd's own.
package %w(libpam-modules libpam-systemd)

# -- Homes: they may be on another machine, and are made by the first login ---------------------------------

template '/usr/share/pam-configs/causeway-mkhomedir' do
  source 'mkhomedir.erb'
  mode '0644'
  notifies :run, 'execute[have PAM make homes]', :immediately
end

execute 'have PAM make homes' do
  command %w(pam-auth-update --package --enable causeway-mkhomedir)
  environment 'DEBIAN_FRONTEND' => 'noninteractive'
  action :nothing
end

# -- Limits -------------------------------------------------------------------------------------------------

template '/etc/security/limits.d/60-causeway.conf' do
  source 'limits.conf.erb'
  mode '0644'
end

directory '/etc/systemd/system/user-.slice.d'

template '/etc/systemd/system/user-.slice.d/60-causeway.conf' do
  source 'user-slice.conf.erb'
  mode '0644'
  notifies :run, 'execute[systemctl daemon-reload for user slices]', :immediately
end

execute 'systemctl daemon-reload for user slices' do
  command %w(systemctl daemon-reload)
  only_if { systemd? }
  action :nothing
end

# -- Sessions that last: screen, tmux -----------------------------------------------------------------------

directory '/etc/systemd/logind.conf.d'

cookbook_file '/etc/systemd/logind.conf.d/causeway.conf' do
  source 'logind.conf'
  mode '0644'
  notifies :run, 'execute[logind reads its configuration, for people]', :immediately
end

# As in the cookbook kubernetes: the unit has no reload, and a restart would lose sessions' devices.
execute 'logind reads its configuration, for people' do
  command %w(systemctl kill --kill-who=main --signal=HUP systemd-logind.service)
  action :nothing
end

# -- GPUs ---------------------------------------------------------------------------------------------------

cookbook_file '/etc/profile.d/causeway-gpu.sh' do
  source 'gpu.sh'
  mode '0644'
end

gpu_group = node['ssh_node']['gpu_group']
gpu_gid = nil

if gpu_group
  item = Causeway::People.items(self, node['base']['groups_data_bag']).find { |each| each['id'] == gpu_group }
  raise "ssh_node.gpu_group: #{gpu_group} is not a group of the data bag #{node['base']['groups_data_bag']}" unless item

  gpu_gid = item['gid']
end

# The driver's own device files: udev has no part in them.
template '/etc/modprobe.d/causeway-gpu-access.conf' do
  source 'gpu-access.conf.erb'
  mode '0644'
  variables(gid: gpu_gid)
  action gpu_group ? :create : :delete
end

# -- What everybody reads -----------------------------------------------------------------------------------

directory '/etc/motd.d'

template '/etc/motd.d/causeway' do
  source 'motd.erb'
  mode '0644'
end
