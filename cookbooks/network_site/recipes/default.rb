# frozen_string_literal: true

#
# Cookbook:: network_site
# Recipe:: default
#
# The packages, the tree, and the tree's own `site-tunnel reload`. `invoke vpn.push` brings the same tree
# in the same way; it is faster, and may come at any time before or after. A firewall that is new is taken back
# after an hour, unless `invoke converge` is let in again once this run has ended.
#

package node['network_site']['packages'].to_a

tree_name = "strongswan-#{node['causeway']['site']}"
tree = node['network_site']['tree']

daemons = %w(strongswan.service frr.service)

# While an image is made: all machines of it would have the same tunnels.
if Causeway::Place.baking?(node) || !::File.directory?(tree)
  daemons.each do |each|
    service each do
      action %i(disable stop)
      not_if { Causeway::Tree.here?(tree_name) }
    end
  end

  log 'a gateway without its tree' do
    message "#{tree} is not here: this gateway has no tunnels before `invoke converge` or `invoke vpn.push`"
    level :warn
    not_if { Causeway::Place.baking?(node) }
  end
  return
end

# Packages start their daemons at once, with a default configuration. The tree's reload restarts them.
daemons.each do |each|
  service "#{each} without its tree" do
    service_name each
    action :stop
    not_if { Causeway::Tree.here?(tree_name) }
  end
end

base_tree tree_name do
  source tree
  reload %w(/usr/local/sbin/site-tunnel reload --confirm 3600)
end

node['network_site']['services'].each do |each|
  service each do
    action %i(enable start)
  end
end
