# frozen_string_literal: true

#
# Cookbook:: base
# Recipe:: metrics
#

return unless node['base']['node_exporter']

# Before the package, which starts the exporter at once: on all addresses, were it not for this.
template '/etc/default/prometheus-node-exporter' do
  source 'node-exporter.erb'
  mode '0644'
  variables(address: Causeway::Place.private_address(node), port: node['base']['node_exporter_port'])
  notifies :restart, 'service[prometheus-node-exporter]', :delayed
end

directory '/etc/systemd/system/prometheus-node-exporter.service.d'

cookbook_file '/etc/systemd/system/prometheus-node-exporter.service.d/causeway.conf' do
  source 'node-exporter.conf'
  mode '0644'
  notifies :run, 'execute[systemctl daemon-reload for the exporter]', :immediately
end

execute 'systemctl daemon-reload for the exporter' do
  command %w(systemctl daemon-reload)
  only_if { systemd? }
  action :nothing
end

# Its recommended collectors bring daemons for hardware that is not there, and their units fail.
package 'prometheus-node-exporter' do
  options '--no-install-recommends'
end

service 'prometheus-node-exporter' do
  action :enable
end

# Until its address is there, systemd tries again every few seconds: it is neither up nor to be started.
service 'prometheus-node-exporter now' do
  service_name 'prometheus-node-exporter'
  action :start
  only_if { Causeway::Place.address_there?(node) }
end
