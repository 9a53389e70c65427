# frozen_string_literal: true

provides :gpu_module
unified_mode true

description "NVIDIA's kernel module, for every kernel whose headers are here: also for those that are not " \
  'running yet, as in an image, or after an update of the kernel.'

property :branch, [Integer, String],
  name_property: true,
  coerce: proc { |value| Integer(value) },
  description: "The driver's branch"

default_action :build

action :verify, description: 'Fail where no kernel has the module, as one that somebody else built.' do
  ruby_block "some kernel has NVIDIA's module of branch #{new_resource.branch}" do
    block { Causeway::Gpus.version_on_disk(new_resource.branch) }
    not_if { Causeway::Gpus.on_disk?(new_resource.branch) }
  end
end

action :build, description: 'Have DKMS build what is missing, and refuse another branch.' do
  Causeway::Gpus.without(new_resource.branch).each do |kernel|
    execute "build NVIDIA's module for #{kernel}" do
      command ['dkms', 'autoinstall', '-k', kernel]
    end
  end

  # An archive's `nvidia-headless-570-server` may by now be an empty package that brings 580.
  ruby_block "NVIDIA's module is of branch #{new_resource.branch}" do
    block do
      wrong = Causeway::Gpus.without(new_resource.branch)
      found = wrong.map { |kernel| "#{kernel} has #{Causeway::Gpus.installed(kernel) || 'none'}" }
      raise "NVIDIA's module is not of branch #{new_resource.branch}: #{found.join(', ')}. See what " \
            '`dkms status` says; where the archive has replaced the branch by another one, name that one.'
    end
    not_if { Causeway::Gpus.without(new_resource.branch).empty? }
  end
end
