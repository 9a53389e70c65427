# frozen_string_literal: true

#
# Cookbook:: base
# Recipe:: time
#

package 'chrony' # systemd-timesyncd goes: it is a conflict

directory '/etc/chrony'

template '/etc/chrony/chrony.conf' do
  source 'chrony.conf.erb'
  mode '0644'
  variables(
    nearest: Causeway::Place.on_aws?(node) ? node['base']['aws_time_server'] : nil,
    servers: node['base']['time_servers'].to_a,
    pool: node['platform'] == 'ubuntu' ? 'ntp.ubuntu.com' : '2.debian.pool.ntp.org'
  )
  verify 'test ! -x /usr/sbin/chronyd || /usr/sbin/chronyd -p -f %{path}'
  notifies :restart, 'service[chrony]', :delayed
end

service 'chrony' do
  action :enable
end

# A container has its host's clock, and the unit does not start there.
service 'chrony now' do
  service_name 'chrony'
  action :start
  not_if 'systemd-detect-virt --quiet --container'
end

timezone node['base']['timezone'] do
  only_if { systemd? }
end
