# frozen_string_literal: true

module Causeway
  # Elastic Fabric Adapters of a machine, as the PCI bus tells of them: before a driver has found them, and where
  # there is none.
  module Efa
    DEVICES = '/sys/bus/pci/devices'
    # Of Amazon. Devices of EFA are 0xefa0 and on (amzn-drivers, efa_main.c).
    VENDOR = '0x1d0f'

    module_function

    def adapters(devices = DEVICES)
      Dir.glob("#{devices}/*").count do |path|
        id(path, 'vendor') == VENDOR && id(path, 'device').start_with?('0xefa')
      end
    end

    # How many of the adapters a driver has found.
    def driven(devices = '/sys/class/infiniband')
      Dir.glob("#{devices}/*").size
    end

    # Huge pages of 2 MiB that the kernel has set aside: as many as were asked for, or those that it found.
    def huge_pages(path = '/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages')
      File.exist?(path) ? Integer(File.read(path)) : 0
    end

    def id(path, name)
      file = "#{path}/#{name}"
      File.exist?(file) ? File.read(file).strip : ''
    end
  end
end
