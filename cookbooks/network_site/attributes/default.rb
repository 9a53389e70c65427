# frozen_string_literal: true

# Debian packages of a gateway. The standard plugins hold AES-GCM and the groups 19 to 21 (openssl).
default['network_site']['packages'] = %w(
  charon-systemd dnsmasq-base frr frr-pythontools iproute2 keepalived libstrongswan-standard-plugins nftables python3
  strongswan-swanctl
)

# The gateway's tree, laid out like `/`, as `invoke converge` or an image brings it.
default['network_site']['tree'] = '/var/lib/causeway/chef/trees/strongswan'

# systemd keeps them running, also after a manual stop. All but the first two come with the tree.
default['network_site']['services'] = %w(
  strongswan.service frr.service site-gateway-firewall.service site-gateway-interfaces.service
  site-gateway-revive.timer site-gateway-metrics.timer site-gateway-dns.service
)
