# frozen_string_literal: true

#
# Cookbook:: base
# Recipe:: kernel
#
# One file rather than a `sysctl` resource a key: those make files that come after all others (99-chef-…), and
# a gateway's tree has the last word on what it needs.
#

template '/etc/sysctl.d/60-causeway.conf' do
  source 'sysctl.conf.erb'
  mode '0644'
  notifies :restart, 'service[systemd-sysctl]', :immediately
end

# Loads all files in their order, as at boot. Settings that this kernel does not support are not an error.
service 'systemd-sysctl' do
  ignore_failure true
  action :nothing
end
