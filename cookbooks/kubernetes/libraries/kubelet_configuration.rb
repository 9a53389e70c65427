# frozen_string_literal: true

module Causeway
  # A node's own part of the kubelet's configuration (kubelet.config.k8s.io/v1beta1).
  module KubeletConfiguration
    module_function

    def document(node)
      settings = node['kubernetes']
      common = {
        'apiVersion' => Kubeadm::KUBELET_API,
        'kind' => 'KubeletConfiguration',
        'cgroupDriver' => 'systemd',
        'rotateCertificates' => true,
        'serverTLSBootstrap' => true,
        'seccompDefault' => true,
        'protectKernelDefaults' => false,
        'podPidsLimit' => 16_384,
        'serializeImagePulls' => false,
        'maxParallelImagePulls' => 3,
        'containerLogMaxSize' => '50Mi',
        'containerLogMaxFiles' => 3,
        'singleProcessOOMKill' => true,
      }
      own = [size(node), leftovers(settings), shutdown(settings), taints(settings), provider]
        .reduce(common, :merge)
      Kubeadm.merge(own, settings['kubelet'])
    end

    def size(node)
      settings = node['kubernetes']
      cpus = node['cpu']['total'].to_i
      memory = Reservations.mib(node['memory']['total'])
      pods = settings['pods_per_node']
      given = settings['reserved']
      {
        'maxPods' => pods,
        'kubeReserved' => Reservations.kube(cpus, pods).merge(given['kube'].to_h),
        'systemReserved' => Reservations.system(cpus, memory).merge(given['system'].to_h),
      }
    end

    def leftovers(settings)
      images = settings['image_gc']
      {
        'evictionHard' => settings['eviction'].to_h,
        'imageGCHighThresholdPercent' => images['high'],
        'imageGCLowThresholdPercent' => images['low'],
        'imageMaximumGCAge' => images['maximum_age'],
      }
    end

    def shutdown(settings)
      {
        'shutdownGracePeriod' => "#{settings['shutdown']['grace']}s",
        'shutdownGracePeriodCriticalPods' => "#{settings['shutdown']['critical']}s",
      }
    end

    # By which a controller for AWS finds the instance of a node. It is read when a node registers.
    def provider
      { 'providerID' => Instance.provider_id }.compact
    end

    def taints(settings)
      taints = settings['taints'].map { |each| NodeRegistration.taint(each) }
      taints.empty? ? {} : { 'registerWithTaints' => taints }
    end
  end
end
