# frozen_string_literal: true

#
# Cookbook:: kubernetes
# Recipe:: control_plane
#
# A master. The first one begins the cluster, unless there is one; the others join it, and so does a first one
# that was replaced. A bake brings packages and images, no more.

include_recipe 'kubernetes::default'

settings = node['kubernetes']
plane = settings['control_plane']

# Set aside in a bake: a master then starts in seconds, also where a registry is slow or away.
execute 'kubeadm config images pull' do
  command lazy { %w(kubeadm config images pull) + Causeway::Images.arguments }
  timeout 1800
  only_if { node.read('causeway', 'baking') && plane['pull_images'] }
  not_if { Causeway::Images.all_here? }
end

return if node.read('causeway', 'baking')

name = settings['node_name'] || node.read('causeway', 'name') || node['hostname']
endpoint = settings['endpoint'] || node['causeway']['api']
secrets = settings['join']['file']
encrypted = ::File.exist?(plane['encryption'])

# To restart it is left to people: with one master the API is away meanwhile, with three it is one after another.
api_server_runs = ::File.exist?('/etc/kubernetes/manifests/kube-apiserver.yaml')

log 'the API server has yet to read its files' do
  message 'The audit policy or the encryption changed; the API server reads them when it starts. Masters one ' \
    "after another: crictl stop $(crictl ps --quiet --name '^kube-apiserver$')"
  level :warn
  action :nothing
  only_if { api_server_runs }
end

directory '/etc/kubernetes' do
  mode '0755'
end

cookbook_file Causeway::Kubeadm::AUDIT_POLICY do
  source 'audit-policy.yaml'
  mode '0600'
  notifies :write, 'log[the API server has yet to read its files]', :delayed
  only_if { settings['audit'] }
end

# Read again by the API server when it changes, in a folder that its container sees whole. An issuer that left the
# spec leaves a file that names none.
if plane['authentication'] || ::File.exist?(Causeway::Kubeadm::AUTHENTICATION)
  directory ::File.dirname(Causeway::Kubeadm::AUTHENTICATION) do
    mode '0700'
  end

  file Causeway::Kubeadm::AUTHENTICATION do
    content Causeway::Kubeadm.yaml(plane['authentication'] || Causeway::Kubeadm::NO_ISSUER)
    mode '0600'
  end
end

# Where Prometheus keeps its figures, as the user and the group of its pod. It may never come.
directory '/var/lib/causeway/prometheus' do
  owner 1000
  group 2000
  mode '0770'
  recursive true
end

directory Causeway::Kubeadm::AUDIT_LOGS do
  mode '0700'
  recursive true
  only_if { settings['audit'] }
end

remote_file Causeway::Kubeadm::ENCRYPTION do
  source "file://#{plane['encryption']}"
  mode '0600'
  notifies :write, 'log[the API server has yet to read its files]', :delayed
  sensitive true
  backup false
  only_if { encrypted }
end

# An authority that is known beforehand lets nodes know their API before there is one. What kubeadm finds, it
# keeps.
Dir.glob('**/*', base: plane['pki']).sort.each do |path|
  next unless ::File.file?("#{plane['pki']}/#{path}")

  directory ::File.dirname("/etc/kubernetes/pki/#{path}") do
    mode '0755'
    recursive true
  end

  remote_file "/etc/kubernetes/pki/#{path}" do
    source "file://#{plane['pki']}/#{path}"
    mode path.end_with?('.key') ? '0600' : '0644'
    sensitive true
    backup false
    action :create_if_missing
  end
end

cluster = Causeway::Kubeadm.cluster(
  name: node['causeway']['cluster'],
  endpoint: endpoint,
  pods: node['causeway']['pods'],
  services: node['causeway']['services'],
  domain: settings['cluster_domain'],
  pods_per_node: settings['pods_per_node'],
  sans: ([endpoint.split(':').first, node.read('causeway', 'fqdn'), settings['node_ip']].compact +
    plane['cert_sans'].to_a).uniq,
  audit: settings['audit'] ? plane['audit_log'] : nil,
  encrypted: encrypted
)
init = Causeway::Kubeadm.init(name: name, address: settings['node_ip'])
shared = {
  'apiVersion' => Causeway::Kubeadm::KUBELET_API,
  'kind' => 'KubeletConfiguration',
  'cgroupDriver' => 'systemd',
}.merge(settings['kubelet'].to_h).merge('maxPods' => settings['pods_per_node'])
documents = [
  Causeway::Kubeadm.merge(init, plane['init']), Causeway::Kubeadm.merge(cluster, plane['cluster']), shared,
]
documents << plane['proxy'].to_h unless plane['proxy'].empty?

# An API server that is configured to encrypt and has no key does not start, and one that is not configured keeps
# secrets as they are: neither is a cluster to begin.
ready = encrypted || Causeway::Kubeadm.names_no_key?(documents)

log 'the key that secrets are encrypted with is not here yet' do
  message "#{plane['encryption']} is not here yet: this machine does not become a master in this run"
  level :warn
  not_if { ready || ::File.exist?('/etc/kubernetes/admin.conf') }
end

# With the join file there is a cluster to join, whichever master this is.
kubernetes_init name do
  config documents
  config_file plane['config'] if plane['config']
  endpoint endpoint
  only_if { ready && name == plane['first'] && !::File.exist?(secrets) }
end

log 'the secret to join the masters is not here yet' do
  message "#{secrets} is not here yet: this machine does not join the masters in this run"
  level :warn
  not_if { ::File.exist?('/etc/kubernetes/admin.conf') || ::File.exist?(secrets) }
end

kubernetes_join name do
  endpoint endpoint
  secrets secrets
  address settings['node_ip'] if settings['node_ip']
  master true
  only_if { ready && ::File.exist?(secrets) }
end

kubernetes_labels name do
  labels Causeway::Instance.labels(settings['labels'].to_h)
  taints settings['taints'].to_a
  action :reconcile
  only_if { ::File.exist?('/etc/kubernetes/kubelet.conf') }
end

include_recipe 'kubernetes::upkeep'

directory '/root/.kube' do
  mode '0700'
end

link '/root/.kube/config' do
  to '/etc/kubernetes/admin.conf'
  only_if { ::File.exist?('/etc/kubernetes/admin.conf') }
  not_if { ::File.exist?('/root/.kube/config') && !::File.symlink?('/root/.kube/config') }
end
