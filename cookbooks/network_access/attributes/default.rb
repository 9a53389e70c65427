# frozen_string_literal: true

# Debian packages of a VPN server; dnsmasq's base package has no daemon of its own that would take port 53.
default['network_access']['packages'] = %w(dnsmasq-base iproute2 nftables openssl openvpn python3 wireguard-tools)

# The server's tree, laid out like `/`, as `invoke converge` or an image brings it.
default['network_access']['tree'] = '/var/lib/causeway/chef/trees/openvpn'

# systemd keeps them running, also after a manual stop. They come with the tree, as do the listeners.
default['network_access']['services'] = %w(
  remote-access-firewall.service remote-access-dns.service remote-access-expire.timer remote-access-list.timer
  remote-access-peers.timer remote-access-metrics.timer
)
