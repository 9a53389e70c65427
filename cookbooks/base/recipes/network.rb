# frozen_string_literal: true

#
# Cookbook:: base
# Recipe:: network
#

directory '/etc/systemd/networkd.conf.d' do
  recursive true
end

# Restarting it changes nothing of interfaces that are as its files say; where it does not run, it is not started.
execute 'systemctl try-restart systemd-networkd.service' do
  action :nothing
end

cookbook_file '/etc/systemd/networkd.conf.d/10-causeway.conf' do
  source 'networkd.conf'
  mode '0644'
  notifies :run, 'execute[systemctl try-restart systemd-networkd.service]', :delayed
end
