# frozen_string_literal: true

provides :kubernetes_swap
unified_mode true

description 'Swap, which the kubelet does without: requests and limits of memory then mean what they say.'

property :fstab, String,
  default: '/etc/fstab',
  description: 'The table of file systems'

action :off, description: 'Turn swap off, now and at the next boot.' do
  # Swap partitions may also be found by systemd itself, on GPT disks.
  systemd_unit 'swap.target' do
    action :mask
  end

  if ::File.exist?(new_resource.fstab)
    file new_resource.fstab do
      content Causeway::Swap.without(::File.read(new_resource.fstab))
    end
  end

  # A container sees its host's swap, which is not its own to turn off.
  execute 'swapoff --all' do
    command %w(swapoff --all)
    only_if { Causeway::Swap.used?(::File.read('/proc/swaps')) }
    not_if 'systemd-detect-virt --container --quiet'
  end
end
