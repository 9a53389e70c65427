# frozen_string_literal: true

#
# Cookbook:: kubernetes
# Recipe:: efa
#
# What a machine with Elastic Fabric Adapters sets aside for pods that use them. Its driver is the kernel's own, which
# udev loads; pods bring libfabric. Locked memory has no limit: container_runtime sees to it.

adapters = Causeway::Efa.adapters
return if adapters.zero?

pages = node['kubernetes']['efa']['huge_pages']

# The kubelet counts them when it starts.
file '/etc/sysctl.d/70-causeway-efa.conf' do
  content "# Written by Chef: changes here are lost. Buffers of libfabric.\nvm.nr_hugepages = #{pages}\n"
  mode '0644'
  notifies :run, 'execute[huge pages are set aside]', :immediately
  notifies :restart, 'service[kubelet]', :delayed
end

execute 'huge pages are set aside' do
  command %w(sysctl --load /etc/sysctl.d/70-causeway-efa.conf)
  action :nothing
end

log 'there are fewer huge pages than EFA wants' do
  message lazy {
    "#{Causeway::Efa.huge_pages} of #{pages} huge pages: memory is in pieces. A reboot sets them aside first of all"
  }
  level :warn
  only_if { Causeway::Efa.huge_pages < pages }
end

log 'the kernel has no driver for its Elastic Fabric Adapters' do
  message "#{adapters} adapters, and a driver for fewer: install linux-modules-extra-aws, or a newer kernel"
  level :warn
  only_if { Causeway::Efa.driven < adapters }
end
