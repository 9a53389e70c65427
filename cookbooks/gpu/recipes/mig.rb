# frozen_string_literal: true

#
# Cookbook:: gpu
# Recipe:: mig
#
# GPUs that are split into instances, all of one size. Neither instances nor, from Hopper on, the mode outlive a
# reboot: a unit makes them before the kubelet starts.

size = Causeway::Mig.size(node)

cookbook_file '/usr/local/sbin/causeway-gpu-mig' do
  source 'causeway-gpu-mig'
  mode '0755'
end

systemd_unit 'causeway-gpu-mig.service' do
  content(
    Unit: {
      Description: 'Instances of GPUs',
      Documentation: 'https://docs.nvidia.com/datacenter/tesla/mig-user-guide/',
      After: 'nvidia-persistenced.service nvidia-fabricmanager.service',
      Before: 'kubelet.service nvidia-dcgm-exporter.service',
    },
    Service: { Type: 'oneshot', RemainAfterExit: true, ExecStart: "/usr/local/sbin/causeway-gpu-mig apply #{size}" },
    Install: { WantedBy: 'multi-user.target' }
  )
  action size ? %i(create enable) : %i(disable delete)
end

# GPUs that work is on are left alone: the run fails, and says so.
execute 'instances of GPUs' do
  command lazy { ['/usr/local/sbin/causeway-gpu-mig', *(size ? ['apply', size] : ['off'])] }
  not_if { Causeway::Mig.as_wanted?(size) }
  only_if { Causeway::Gpus.usable?(node) }
end
