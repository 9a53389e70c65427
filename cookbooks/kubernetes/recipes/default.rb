# frozen_string_literal: true

#
# Cookbook:: kubernetes
# Recipe:: default
#
# What every node has before it is one: packages, a kubelet that knows its size, no swap. Nothing here needs
# the site, so a bake does all of it; a machine's own first run then only writes what is its own.

settings = node['kubernetes']
minor = settings['version']
archive = settings['repository']

base_apt_source 'kubernetes' do
  uri format(archive['uri'], minor: minor)
  suites archive['suites']
  components archive['components'] if archive['components']
  key_url format(archive['key_url'], minor: minor) if archive['key_url']
  key_path archive['key_path']
  pin_packages %w(kubeadm kubectl kubelet)
  pin_version settings['package_version'] || "#{minor}.*"
end

%w(kubelet kubeadm kubectl).each do |name|
  kubernetes_package name
end

# Programs of a node that talks to AWS by its instance role: an image has them, whatever it becomes.
if settings['join']['parameter'] || settings['control_plane']['snapshots']['bucket']
  package 'python3-boto3'
end

directory '/usr/local/lib/causeway' do
  mode '0755'
end

remote_directory '/usr/local/lib/causeway/kubernetes_node' do
  source 'kubernetes_node'
  mode '0755'
  files_mode '0644'
  purge true
end

cookbook_file '/usr/local/sbin/causeway-join-fetch' do
  source 'causeway-join-fetch'
  mode '0755'
end

kubernetes_swap 'off' do
  action :off
end

directory '/etc/kubernetes/kubelet.conf.d' do
  mode '0755'
  recursive true
end

# Over /var/lib/kubelet/config.yaml, which kubeadm writes for all nodes, and again at each upgrade.
file '/etc/kubernetes/kubelet.conf.d/50-causeway.conf' do
  content Causeway::Kubeadm.yaml(Causeway::KubeletConfiguration.document(node))
  mode '0644'
  notifies :restart, 'service[kubelet]', :delayed
end

template '/etc/default/kubelet' do
  source 'kubelet.erb'
  mode '0644'
  variables(
    arguments: Causeway::NodeRegistration.arguments(
      labels: Causeway::NodeRegistration.labels(Causeway::Instance.labels(settings['labels'].to_h)),
      node_ip: settings['node_ip'],
      further: settings['kubelet_arguments'].to_h
    )
  )
  notifies :restart, 'service[kubelet]', :delayed
end

directory '/etc/systemd/system/kubelet.service.d' do
  mode '0755'
end

cookbook_file '/etc/systemd/system/kubelet.service.d/20-causeway.conf' do
  source 'kubelet-unit.conf'
  mode '0644'
  notifies :run, 'execute[systemctl daemon-reload for the kubelet]', :immediately
end

execute 'systemctl daemon-reload for the kubelet' do
  command %w(systemctl daemon-reload)
  action :nothing
end

directory '/etc/systemd/logind.conf.d' do
  mode '0755'
end

cookbook_file '/etc/systemd/logind.conf.d/zz-kubelet.conf' do
  source 'logind-shutdown.conf'
  mode '0644'
  notifies :run, 'execute[logind reads its configuration]', :immediately
end

# The unit has no reload; the signal is how logind reads its configuration again without losing sessions.
execute 'logind reads its configuration' do
  command %w(systemctl kill --kill-who=main --signal=HUP systemd-logind.service)
  action :nothing
end

package 'nftables'

directory '/etc/causeway' do
  mode '0755'
end

egress = settings['egress']
template '/etc/causeway/pods.nft' do
  source 'pods.nft.erb'
  mode '0644'
  variables(
    pods: node['causeway']['pods'],
    services: node['causeway']['services'],
    dns: node['causeway']['cluster_dns'],
    api_port: (settings['endpoint'] || node['causeway']['api']).to_s[/\d+\z/] || 6443,
    master: node.read('causeway', 'role') == 'control-plane',
    overlay: egress['overlay'],
    refused: egress['refused'].to_h,
    machines: egress['machines'].to_a,
    endpoints: egress['endpoints'].to_a,
    allowed: egress['allowed'].to_a
  )
  notifies :reload, 'systemd_unit[causeway-pods.service, now]', :delayed
end

systemd_unit 'causeway-pods.service' do
  content(
    'Unit' => {
      'Description' => 'What pods may not send', 'Before' => 'kubelet.service', 'After' => 'network-pre.target',
      # A container has its host's kernel, whose rules are not ours.
      'ConditionVirtualization' => '!container',
    },
    'Service' => {
      'Type' => 'oneshot', 'RemainAfterExit' => 'yes',
      'ExecStart' => '/usr/sbin/nft --file /etc/causeway/pods.nft',
      # The kubelet needs this unit: a restart of it would be one of the kubelet.
      'ExecReload' => '/usr/sbin/nft --file /etc/causeway/pods.nft',
    },
    'Install' => { 'WantedBy' => 'multi-user.target' }
  )
  verify true
  action %i(create enable)
end

systemd_unit 'causeway-pods.service, now' do
  unit_name 'causeway-pods.service'
  action :start
  not_if 'systemd-detect-virt --container --quiet'
end

# flannel writes it once network policies are in force on this machine. What it wrote before the last boot goes: until
# then containerd has no network, the node is not ready, and no pod with an address of its own starts.
file '/etc/tmpfiles.d/causeway-cni.conf' do
  content "r! /etc/cni/net.d/10-flannel.conflist\n"
  mode '0644'
end

# Once it has joined, it runs. Before, its unit waits for what kubeadm writes.
service 'kubelet' do
  action ::File.exist?('/etc/kubernetes/kubelet.conf') ? %i(enable start) : :enable
  notifies :get, 'http_request[the kubelet is well]', :delayed
end

# A kubelet that does not like its configuration restarts for ever, which systemd calls active: a run that leaves
# it so fails, and the nodes after it keep theirs.
http_request 'the kubelet is well' do
  url "http://127.0.0.1:#{settings['kubelet']['healthzPort'] || 10_248}/healthz"
  retries 1
  retry_delay 5
  action :nothing
  only_if { ::File.exist?('/etc/kubernetes/kubelet.conf') }
end

log 'another version of Kubernetes is installed' do
  message lazy { "#{Causeway::Packages.installed('kubelet')}, not #{minor}: run kubernetes::upgrade" }
  level :warn
  only_if { Causeway::Packages.another_minor?('kubelet', minor) }
end
