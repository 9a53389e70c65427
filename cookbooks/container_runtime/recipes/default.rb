# frozen_string_literal: true

#
# Cookbook:: container_runtime
# Recipe:: default
#
# containerd, as the kubelet wants it. Nothing here needs the site, so a bake does all of it.

settings = node['container_runtime']
kubernetes = node.read('kubernetes', 'version')

# A container has its host's kernel: nothing to load or to set there.
in_a_container = 'systemd-detect-virt --container --quiet'

file '/etc/modules-load.d/kubernetes.conf' do
  content "#{settings['modules'].join("\n")}\n"
  mode '0644'
end

settings['modules'].each do |name|
  kernel_module name do
    action :load
    not_if { ::File.directory?("/sys/module/#{name}") }
    not_if in_a_container
  end
end

settings['sysctls'].each do |key, value|
  sysctl key do
    value value
    comment 'Containers and pods'
    not_if in_a_container
  end
end

version = settings['version']
source = settings['repository']
package_name = version ? source['package'] : 'containerd'

base_apt_source 'containerd' do
  uri source['uri']
  suites source['suites'] || node['lsb']['codename']
  components source['components']
  key_url source['key_url']
  key_checksum source['key_checksum'] if source['key_checksum']
  pin_packages [source['package']]
  pin_version Causeway::Containerd.pin(version) if version
  action version ? :create : :remove
end

# The pin says which version; moving it moves the package.
apt_package package_name do
  action((version && !Causeway::Place.first_boot?(node)) ? :upgrade : :install)
  notifies :restart, 'service[containerd]', :delayed
end

[settings['cni']['bin_dir'], settings['cni']['conf_dir'], '/etc/containerd/conf.d'].each do |path|
  directory path do
    mode '0755'
    recursive true
  end
end

nvidia = settings['nvidia']
with_gpus = nvidia['enabled'].nil? ? !node.read('gpu', 'driver').nil? : nvidia['enabled']
runtimes = settings['runtimes'].to_h
runtimes = runtimes.merge('nvidia' => nvidia.to_h.slice('path', 'default')) if with_gpus

container_runtime_config '/etc/containerd/config.toml' do
  sandbox_image settings['sandbox_image'] || Causeway::Containerd.sandbox_image(kubernetes)
  runtimes runtimes
  max_concurrent_downloads settings['max_concurrent_downloads']
  cni_bin_dir settings['cni']['bin_dir']
  cni_conf_dir settings['cni']['conf_dir']
  notifies :restart, 'service[containerd]', :delayed
end

settings['registry_mirrors'].each do |registry, mirrors|
  container_runtime_mirror registry do
    mirrors mirrors.to_a
    ca settings['registry_ca'] if settings['registry_ca']
    action mirrors.empty? ? :remove : :create
  end
end

# Mirrors that the spec no longer has; those that somebody else wrote stay.
Dir.glob('/etc/containerd/certs.d/*/hosts.toml').each do |path|
  registry = File.basename(File.dirname(path))
  next if settings['registry_mirrors'].key?(registry) || !File.read(path).start_with?('# Written by Chef')

  container_runtime_mirror registry do
    action :remove
  end
end

directory '/etc/systemd/system/containerd.service.d' do
  mode '0755'
end

cookbook_file '/etc/systemd/system/containerd.service.d/limits.conf' do
  source 'containerd-limits.conf'
  mode '0644'
  notifies :run, 'execute[systemctl daemon-reload for containerd]', :immediately
  notifies :restart, 'service[containerd]', :delayed
end

execute 'systemctl daemon-reload for containerd' do
  command %w(systemctl daemon-reload)
  action :nothing
end

cookbook_file '/etc/crictl.yaml' do
  source 'crictl.yaml'
  mode '0644'
end

service 'containerd' do
  action %i(enable start)
end

log 'containerd is too old for the kubelet' do
  message "Kubernetes #{kubernetes} is not tested with containerd 1.x: set container_runtime.version to 2.x"
  level :warn
  only_if do
    kubernetes && Causeway::Containerd.outlived?(Causeway::Containerd.installed, kubernetes)
  end
end
