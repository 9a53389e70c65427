# frozen_string_literal: true

#
# Cookbook:: ml_stack
# Recipe:: conda
#
# Miniforge, by a checksum.

settings = node['ml_stack']
pin = node.read('software', 'miniforge')
url, checksum = Causeway::Miniforge.installer(pin, node['kernel']['machine'])
conda = settings['conda']
marker = "#{conda}/.miniforge"

package %w(bash ca-certificates)

directory '/var/cache/causeway'

installer = "/var/cache/causeway/miniforge-#{pin['version']}.sh"

remote_file installer do
  source url
  checksum checksum
  mode '0644'
  backup false
  not_if { ::File.exist?(marker) && ::File.read(marker).strip == pin['version'] }
end

# `-u` brings an older one up to this one; environments are elsewhere and stay as they are.
execute "install Miniforge #{pin['version']}" do
  command lazy { ['bash', installer, '-b', *(::File.exist?(conda) ? ['-u'] : []), '-p', conda] }
  environment 'HOME' => '/root'
  umask '022'
  timeout 1800
  not_if { ::File.exist?(marker) && ::File.read(marker).strip == pin['version'] }
end

file marker do
  content "#{pin['version']}\n"
  mode '0644'
end

# Half a gigabyte that is not needed again, least of all in an image.
file installer do
  backup false
  action :delete
end

template "#{conda}/.condarc" do
  source 'condarc.erb'
  mode '0644'
  variables(conda: conda, channels: settings['channels'].to_a, channel_alias: settings['channel_alias'])
end
