# frozen_string_literal: true

module Causeway
  # What a node keeps from pods, by its size.
  #
  # kubelet and containerd: CPU in the steps that GKE, AKS and EKS share (6 % of the first core, 1 % of the
  # second, 0.5 % of the next two, 0.25 % of the others), memory as EKS has it (255 MiB and 11 MiB a pod).
  # The system: SSH sessions, a Chef run, file system clients; more on larger machines, within bounds.
  module Reservations
    CORE_SHARES = [60, 10, 5, 5].freeze
    FURTHER_CORES = 2.5
    KUBE_MIB = 255
    POD_MIB = 11
    SYSTEM_MIB = (512..2048)

    module_function

    # {'cpu' => '140m', 'memory' => '1465Mi'}
    def kube(cpus, pods)
      further = [cpus - CORE_SHARES.size, 0].max * FURTHER_CORES
      millicores = CORE_SHARES.take(cpus).sum + further
      { 'cpu' => "#{millicores.ceil}m", 'memory' => "#{KUBE_MIB + (POD_MIB * pods)}Mi" }
    end

    def system(cpus, memory_mib)
      share = (memory_mib / 64).clamp(SYSTEM_MIB.min, SYSTEM_MIB.max)
      { 'cpu' => "#{(100 + (cpus * 5)).clamp(100, 500)}m", 'memory' => "#{share}Mi" }
    end

    # Ohai's '65843080kB' in MiB.
    def mib(total)
      Integer(total[/\A\d+/]) / 1024
    end
  end
end
