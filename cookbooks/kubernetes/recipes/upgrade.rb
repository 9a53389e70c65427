# frozen_string_literal: true

#
# Cookbook:: kubernetes
# Recipe:: upgrade
#
# A node goes up to `node['kubernetes']['version']`, when it is its turn. In no role's run list: it is run for
# it (`-o recipe[kubernetes::upgrade]`), masters first.

include_recipe 'kubernetes::default'

return if node.read('causeway', 'baking')

settings = node['kubernetes']
upgrade = settings['upgrade']
master = ::File.exist?('/etc/kubernetes/admin.conf')
credentials = master ? '/etc/kubernetes/admin.conf' : '/etc/causeway/secrets/kubernetes-upgrade.conf'

kubernetes_upgrade settings['node_name'] || node.read('causeway', 'name') || node['hostname'] do
  kubeconfig upgrade['kubeconfig'] || credentials
  lease upgrade['lease']
  namespace upgrade['namespace']
  lease_duration upgrade['lease_duration']
  turn_timeout upgrade['turn_timeout']
  drain_timeout upgrade['drain_timeout']
  ready_timeout upgrade['ready_timeout']
  only_if { ::File.exist?('/etc/kubernetes/kubelet.conf') }
end
