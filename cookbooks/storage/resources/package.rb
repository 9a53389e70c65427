# frozen_string_literal: true

provides :storage_package
unified_mode true

description 'A package that is in no archive: fetched by its address, checked by checksum or signature.'

property :package, String,
  name_property: true,
  description: "The package's name"

property :version, String,
  required: true,
  description: 'Its version'

property :url, String,
  required: true,
  description: 'Where it is; its signature is there with `.asc` behind it'

property :checksum, String,
  description: "The file's SHA-256"

property :key_url, String,
  description: 'Where the key is that signs it'

property :key_fingerprint, String,
  description: "That key's fingerprint"

action :install, description: 'Fetch, check and install it, unless that version is there.' do
  return if installed == new_resource.version

  keyring = "#{cache}.gpg"
  unless new_resource.checksum
    apt_package %w(gpg gpgv)

    remote_file("#{cache}.key") { source new_resource.key_url }
    remote_file("#{cache}.asc") { source "#{new_resource.url}.asc" }

    execute "gpg --dearmor #{keyring}" do
      command ['gpg', '--batch', '--yes', '--no-autostart', '--dearmor', '--output', keyring, "#{cache}.key"]
    end
  end

  remote_file "#{cache}.deb" do
    source new_resource.url
    checksum new_resource.checksum if new_resource.checksum
    verify signature_check(keyring) unless new_resource.checksum
  end

  # apt, not dpkg: it brings what the package needs.
  execute "apt-get install #{new_resource.package}" do
    command ['apt-get', '--yes', '--quiet', '--allow-downgrades', 'install', "#{cache}.deb"]
    environment 'DEBIAN_FRONTEND' => 'noninteractive'
  end
end

action_class do
  def cache
    "#{Chef::Config[:file_cache_path]}/#{new_resource.package}-#{new_resource.version}"
  end

  # Only this key: a file of keys may contain others. The primary key comes last (gnupg's doc/DETAILS).
  def signature_check(keyring)
    "gpgv --status-fd 1 --keyring #{keyring} #{cache}.asc %{path} | " \
      "grep --quiet '^.GNUPG:. VALIDSIG .*#{new_resource.key_fingerprint}$'"
  end

  # Without the distribution's revision.
  def installed
    format = '--showformat=${db:Status-Status} ${Version}'
    shown = shell_out('dpkg-query', '--show', format, new_resource.package)
    shown.stdout[/\Ainstalled ([^\s-]+)/, 1]
  end
end
