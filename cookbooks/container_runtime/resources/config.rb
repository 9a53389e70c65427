# frozen_string_literal: true

provides :container_runtime_config
unified_mode true

description "containerd's own configuration, in the form that the installed containerd reads. It reads it " \
  'once before it is put in place.'

property :path, String,
  name_property: true,
  description: 'The file, `/etc/containerd/config.toml`'

property :sandbox_image, String,
  required: true,
  description: "The image that holds a pod's namespaces"

property :runtimes, Hash,
  default: {},
  description: "Runtimes beside runc: handler → {'path', 'default'}"

property :max_concurrent_downloads, Integer,
  default: 3,
  description: 'Layers of an image that are fetched at a time'

property :cni_bin_dir, String,
  default: '/opt/cni/bin',
  description: 'Where CNI plugins are'

property :cni_conf_dir, String,
  default: '/etc/cni/net.d',
  description: 'Where their configuration is'

property :registry_dir, String,
  default: '/etc/containerd/certs.d',
  description: 'Where mirrors are, a folder a registry'

property :containerd_version, String,
  default: lazy { installed_version },
  default_description: 'What `containerd --version` says',
  description: 'The version to write for'

action :create, description: 'Write the file; containerd itself reads it first.' do
  version = new_resource.containerd_version

  directory ::File.dirname(new_resource.path) do
    mode '0755'
    recursive true
  end

  template new_resource.path do
    cookbook 'container_runtime'
    source "config-v#{Causeway::Containerd.config_version(version)}.toml.erb"
    mode '0644'
    variables(
      sandbox_image: new_resource.sandbox_image,
      runtimes: new_resource.runtimes.sort.to_h,
      default_runtime: new_resource.runtimes.find { |_, each| each['default'] }&.first || 'runc',
      downloads: new_resource.max_concurrent_downloads,
      cni_bin_dir: new_resource.cni_bin_dir,
      cni_conf_dir: new_resource.cni_conf_dir,
      registry_dir: new_resource.registry_dir,
      cdi: Causeway::Containerd.at_least?(version, '1.7'),
      several_bin_dirs: Causeway::Containerd.at_least?(version, '2.1')
    )
    verify 'containerd --config %{path} config dump'
  end
end

def installed_version
  Causeway::Containerd.installed ||
    raise('containerd is installed but does not say its version: run `containerd --version`')
end
