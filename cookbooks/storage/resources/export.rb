# frozen_string_literal: true

provides :storage_export
unified_mode true

description "A folder that is exported over NFS. Clients' root is mapped to `nobody`."

property :export_name, String,
  name_property: true,
  regex: /\A[a-z0-9][a-z0-9_-]*\z/,
  description: 'Its name'

property :path, String,
  description: 'The folder'

property :clients, Array,
  default: [],
  description: 'Blocks of addresses that may mount it'

property :read_only, [true, false],
  default: false,
  description: 'Whether it is read-only'

property :mountpoint, String,
  description: 'The mount that it is on: while nothing is mounted there, it is not exported'

property :mode, String,
  default: '0755',
  description: "The folder's mode, when it is made"

action :create, description: 'Make the folder, export it.' do
  directory new_resource.path do
    mode new_resource.mode
    recursive true
    not_if { ::File.directory?(new_resource.path) }
  end

  directory '/etc/exports.d' do
    mode '0755'
  end

  file "/etc/exports.d/#{new_resource.export_name}.exports" do
    content "#{Causeway::Exports::MARK}\n#{line}\n"
    mode '0644'
  end
end

action :remove, description: 'Export it no longer. The folder stays.' do
  file "/etc/exports.d/#{new_resource.export_name}.exports" do
    backup false
    action :delete
  end
end

action_class do
  def line
    Causeway::Exports.line(
      new_resource.path, new_resource.clients, new_resource.read_only, new_resource.mountpoint
    )
  end
end
