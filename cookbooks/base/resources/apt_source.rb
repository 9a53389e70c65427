# frozen_string_literal: true

provides :base_apt_source
unified_mode true

description 'A third-party APT repository with a key of its own, and what may come from it.'

property :uri, String,
  required: [:create],
  description: "The repository's address, or a mirror's"

property :suites, [String, Array],
  required: [:create],
  coerce: proc { |value| Array(value) },
  description: 'Its suites; `/`, or another path that ends so, for a flat repository'

property :components, [String, Array],
  default: [],
  coerce: proc { |value| Array(value) },
  description: 'Its components; a flat repository has none'

property :architectures, [String, Array],
  default: [],
  coerce: proc { |value| Array(value) },
  description: "Only these, by Debian's names; all that the machine knows by default"

property :key_url, String,
  description: 'Where the key that signs the repository is fetched, once; without one, `key_path` is there already'

property :key_path, String,
  default: lazy { "/etc/apt/keyrings/#{name}.asc" },
  default_description: '/etc/apt/keyrings/NAME.asc',
  description: 'Where the key is kept: `.asc` for an armoured one, `.gpg` for a binary one'

property :key_checksum, String,
  description: "The key's SHA-256; a key that has another one is fetched again"

property :pin_packages, [String, Array],
  default: [],
  coerce: proc { |value| Array(value) },
  description: 'Packages, or globs of them, that are held to `pin_version`'

property :pin_version, String,
  description: 'Their version as apt_preferences(5) has it, like `580.*`'

property :pin_priority, [String, Integer],
  default: 1001,
  coerce: proc(&:to_s),
  description: 'Above 1000 also downgrades to that version'

action :create, description: 'Have APT know the repository, and fetch its lists when it is new.' do
  directory ::File.dirname(new_resource.key_path) do
    mode '0755'
    recursive true
  end

  # Lists that were fetched for another address, or before there was the key, are of no use.
  apt_update new_resource.name do
    retries 10
    retry_delay 15
    action :nothing
  end

  if new_resource.key_url
    remote_file new_resource.key_path do
      source new_resource.key_url
      checksum new_resource.key_checksum if new_resource.key_checksum
      mode '0644'
      backup false
      notifies :update, "apt_update[#{new_resource.name}]", :delayed
      not_if { key_kept? }
    end
  end

  template sources do
    cookbook 'base'
    source 'apt-source.sources.erb'
    mode '0644'
    variables(
      name: new_resource.name,
      uri: new_resource.uri,
      suites: new_resource.suites,
      components: new_resource.components,
      architectures: new_resource.architectures,
      key: new_resource.key_path,
      origin: new_resource.key_url ? Causeway::AptKey.origin(new_resource.key_url) : ''
    )
    notifies :update, "apt_update[#{new_resource.name}]", :immediately
  end

  apt_preference new_resource.name do
    glob new_resource.pin_packages.join(' ')
    pin "version #{new_resource.pin_version}"
    pin_priority new_resource.pin_priority
    action pinned? ? :add : :remove
  end
end

action :remove, description: 'Have APT forget the repository, its key and its pins. Packages stay.' do
  apt_update new_resource.name do
    retries 10
    retry_delay 15
    action :nothing
  end

  apt_preference new_resource.name do
    action :remove
  end

  file sources do
    action :delete
    notifies :update, "apt_update[#{new_resource.name}]", :delayed
  end

  file new_resource.key_path do
    action :delete
    backup false
    only_if { !new_resource.key_url.nil? }
  end
end

action_class do
  # remote_file compares the checksum itself, and downloads nothing if it matches.
  def key_kept?
    new_resource.key_checksum.nil? &&
      Causeway::AptKey.kept?(new_resource.key_path, sources, new_resource.key_url)
  end

  def sources
    "/etc/apt/sources.list.d/#{new_resource.name}.sources"
  end

  def pinned?
    !new_resource.pin_version.nil? && !new_resource.pin_packages.empty?
  end
end
