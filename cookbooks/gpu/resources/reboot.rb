# frozen_string_literal: true

provides :gpu_reboot
unified_mode true

description 'That a reboot is due, said where Ubuntu says it: /run/reboot-required. Nothing is rebooted: that ' \
  'needs a drained node.'

property :package, String,
  name_property: true,
  description: 'What is waiting for it'

action :note, description: 'Write it down while the running kernel has another driver than the disk.' do
  reason = Causeway::Place.baking?(node) ? nil : Causeway::Gpus.reboot_for(node['kernel']['release'])

  file '/run/reboot-required' do
    content "*** System restart required ***\n#{reason}\n"
    mode '0644'
    only_if { reason }
  end

  file '/run/reboot-required.pkgs' do
    content lazy { "#{(Causeway::Gpus.waiting | [new_resource.package]).join("\n")}\n" }
    mode '0644'
    only_if { reason }
  end

  log 'reboot' do
    message "A reboot is due: #{reason}"
    level :warn
    only_if { reason }
  end
end
