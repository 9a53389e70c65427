# frozen_string_literal: true

#
# Cookbook:: base
# Recipe:: name
#
# What a machine is called. In a region the network tells it, at a site its facts do.
#

node_name = node.read('causeway', 'name')
fqdn = node.read('causeway', 'fqdn')
address = node.read('causeway', 'address')

if node_name && fqdn && address
  # With 127.0.1.1, as installers have it, a daemon that looks for its own address would find that one.
  template '/etc/hosts' do
    source 'hosts.erb'
    mode '0644'
    variables(address: address, fqdn: fqdn, name: node_name)
  end

  # At each boot cloud-init would write both over, where its own configuration asks for it.
  file '/etc/cloud/cloud.cfg.d/zz-causeway.cfg' do
    content "# Written by Chef.\nmanage_etc_hosts: false\npreserve_hostname: true\n"
    mode '0644'
    only_if { ::File.directory?('/etc/cloud/cloud.cfg.d') }
  end

  # It looks for the very line that the template has.
  hostname node_name do
    fqdn fqdn
    ipaddress address
    compile_time false
  end
end
