# frozen_string_literal: true

provides :gpu_same_version
unified_mode true

description 'A package that works with one version of the driver alone, as fabric manager does.'

property :package, String,
  name_property: true,
  description: 'The package'

property :branch, [Integer, String],
  required: true,
  coerce: proc { |value| Integer(value) },
  description: "The driver's branch"

action :verify, description: 'Fail where the versions differ.' do
  ruby_block "#{new_resource.package} is of the driver's version" do
    block do
      raise "#{new_resource.package} is #{version}, the driver is #{driver}: fabric manager would not start. " \
            "Name a version that the archive has of both in node['gpu']['driver_version']."
    end
    not_if { version == driver }
  end
end

action_class do
  def version
    Causeway::Gpus.version_of(new_resource.package)
  end

  def driver
    Causeway::Gpus.version_on_disk(new_resource.branch)
  end
end
