# frozen_string_literal: true

#
# Cookbook:: network_access
# Recipe:: default
#
# The packages, the tree, and the tree's own `remote-access reload`. `invoke vpn.push` brings the same tree
# in the same way; it is faster, brings each new list of revoked certificates, and may come at any time.
#

package node['network_access']['packages'].to_a

tree = node['network_access']['tree']

# While an image is made: a server's certificate is for one machine.
if Causeway::Place.baking?(node) || !::File.directory?(tree)
  log 'a VPN server without its tree' do
    message "#{tree} not found: clients cannot connect before `invoke converge` or `invoke vpn.push`"
    level :warn
    not_if { Causeway::Place.baking?(node) }
  end
  return
end

base_tree "openvpn-#{node['causeway']['site']}" do
  source tree
  reload(lazy { Causeway::Listeners.ready?(tree) ? %w(/usr/local/sbin/remote-access reload) : [] })
end

log 'a VPN server without its certificate' do
  message 'No certificate found: clients cannot connect before `invoke vpn.init` and `invoke vpn.push`'
  level :warn
  not_if { Causeway::Listeners.ready?(tree) }
end

(node['network_access']['services'].to_a + Causeway::Listeners.units(tree)).each do |each|
  service each do
    action %i(enable start)
    only_if { Causeway::Listeners.ready?(tree) }
  end
end
