# frozen_string_literal: true

#
# Cookbook:: network_site
# Recipe:: default
#
# The packages, the tree, and the tree's own `site-tunnel reload`. `invoke vpn.push` brings the same tree
# in the same way; it is faster, and may come at any time before or after.
#

package node['network_site']['packages'].to_a

tree = node['network_site']['tree']

# While an image is made: all machines of it would have the same tunnels.
if Causeway::Place.baking?(node) || !::File.directory?(tree)
  log 'a gateway without its tree' do
    message "#{tree} is not here: this gateway has no tunnels before `invoke converge` or `invoke vpn.push`"
    level :warn
    not_if { Causeway::Place.baking?(node) }
  end
  return
end

base_tree "strongswan-#{node['causeway']['site']}" do
  source tree
  reload %w(/usr/local/sbin/site-tunnel reload)
end

node['network_site']['services'].each do |each|
  service each do
    action %i(enable start)
  end
end
