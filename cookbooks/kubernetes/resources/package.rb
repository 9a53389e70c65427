# frozen_string_literal: true

provides :kubernetes_package
unified_mode true

description 'A package of Kubernetes. It stays at the version it was installed with, whatever else is ' \
  'upgraded: nodes go up one at a time, by `kubernetes_upgrade`.'

property :package, String,
  name_property: true,
  description: '`kubelet`, `kubeadm`, or `kubectl`'

action :install, description: 'Install the version that is pinned, where there is none, and hold it.' do
  apt_package new_resource.package do
    action %i(install lock)
  end
end

action :upgrade, description: 'Go to the version that is pinned, and hold it.' do
  apt_package new_resource.package do
    options '--allow-change-held-packages'
    action :upgrade
  end

  # Without the option, which apt-mark does not know.
  apt_package "hold #{new_resource.package}" do
    package_name new_resource.package
    action :lock
  end
end
