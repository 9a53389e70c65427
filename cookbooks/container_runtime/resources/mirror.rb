# frozen_string_literal: true

provides :container_runtime_mirror
unified_mode true

description "A registry's mirrors. containerd reads them at each pull, so that nothing needs a restart."

property :registry, String,
  name_property: true,
  description: 'The registry, like `docker.io`; `_default` for all others'

property :mirrors, Array,
  default: [],
  description: 'Addresses, in the order they are asked'

property :ca, String,
  description: "PEM file of the authority behind the mirrors' certificates"

property :registry_dir, String,
  default: '/etc/containerd/certs.d',
  description: 'Where mirrors are, a folder a registry'

action :create, description: 'Write hosts.toml.' do
  directory folder do
    mode '0755'
    recursive true
  end

  template "#{folder}/hosts.toml" do
    cookbook 'container_runtime'
    source 'hosts.toml.erb'
    mode '0644'
    variables(
      server: Causeway::Containerd.server(new_resource.registry),
      mirrors: new_resource.mirrors,
      ca: new_resource.ca
    )
  end
end

action :remove, description: 'Ask the registry itself again.' do
  file "#{folder}/hosts.toml" do
    action :delete
  end
end

action_class do
  def folder
    "#{new_resource.registry_dir}/#{new_resource.registry}"
  end
end
