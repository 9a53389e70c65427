# frozen_string_literal: true

require 'etc'
require 'mixlib/shellout'

module Causeway
  # NVIDIA's GPUs and modules on this machine.
  module Gpus
    VENDOR = '0x10de'
    DEVICES = '/sys/bus/pci/devices'
    # VGA and 3D controllers; bridges, which NVSwitches are.
    DISPLAY = /\A0x030[02]/.freeze
    SWITCH = /\A0x0680/.freeze

    # Debian has several side by side, and an alias for the one that is chosen.
    MODULES = %w(nvidia nvidia-current nvidia-current-open nvidia-tesla-470).freeze

    module_function

    def any?(devices = DEVICES)
      of_class?(DISPLAY, devices)
    end

    def switches?(devices = DEVICES)
      of_class?(SWITCH, devices)
    end

    def of_class?(kind, devices)
      Dir.glob("#{devices}/*").any? do |device|
        read("#{device}/vendor") == VENDOR && read("#{device}/class").to_s.match?(kind)
      end
    end

    # The version of the module in memory; nil where there is none.
    def loaded
      read('/sys/module/nvidia/version')
    end

    # The version of the module on disk, for a kernel; nil where it has none.
    def installed(kernel)
      MODULES.each do |name|
        ran = Mixlib::ShellOut.new('modinfo', '--set-version', kernel, '--field', 'version', name).run_command
        return ran.stdout.strip unless ran.error?
      end
      nil
    end

    # Kernels that modules can be built for: they are installed, and so are their headers.
    def kernels(modules = '/lib/modules')
      Dir.glob("#{modules}/*/build/Makefile").map { |path| path.split('/')[-3] }.sort
    end

    # Kernels that lack the module of a branch.
    def without(branch)
      kernels.reject { |kernel| installed(kernel).to_s.start_with?("#{branch}.") }
    end

    # Names of kernel images that are installed.
    def images
      shown = Mixlib::ShellOut.new('dpkg-query', '--show', '--showformat=${db:Status-Status} ${Package}\n',
        'linux-image-*').run_command.stdout
      shown.scan(/^installed (\S+)$/).flatten
    end

    # The upstream part of an installed package's version: 580.95.05.
    def version_of(package)
      shown = Mixlib::ShellOut.new('dpkg-query', '--show', '--showformat=${db:Status-Status} ${Version}', package)
      shown.run_command.stdout[/\Ainstalled (?:\d+:)?([\d.]+)/, 1]
    end

    # Why nothing less than a reboot brings what was installed into use; nil where nothing waits for one.
    def reboot_for(kernel)
      on_disk = installed(kernel)
      return "kernel #{kernel} has no NVIDIA driver, another one has" if on_disk.nil? && !versions.empty?
      return "NVIDIA's driver #{loaded} is loaded, #{on_disk} is installed" if loaded && on_disk && loaded != on_disk
      return 'nouveau has the GPUs until then' if ::File.exist?('/sys/module/nouveau') && on_disk

      nil
    end

    # Whether a daemon that wants a GPU would find one that works: not while an image is made, nor before the
    # reboot that the driver waits for.
    def usable?(node)
      any? && !Place.baking?(node) && reboot_for(node['kernel']['release']).nil?
    end

    # The driver's version as the kernel's module has it: of the running kernel, or of any.
    def version_on_disk(branch)
      versions.find { |version| version.start_with?("#{branch}.") } ||
        raise("no kernel here has NVIDIA's module of branch #{branch}")
    end

    def on_disk?(branch)
      versions.any? { |version| version.start_with?("#{branch}.") }
    end

    # Of all kernels that are installed, the running one first.
    def versions(modules = '/lib/modules')
      running = Mixlib::ShellOut.new('uname', '-r').run_command.stdout.strip
      here = Dir.glob('*', base: modules).sort
      [running, *here].uniq.filter_map { |kernel| installed(kernel) }
    end

    # The account that the persistence daemon's package made: Ubuntu's, or Debian's.
    def account
      %w(nvidia-persistenced nvpd).find { |name| account?(name) } || 'root'
    end

    def account?(name)
      Etc.getpwnam(name)
    rescue ArgumentError
      nil
    end

    # Packages that already wait for a reboot.
    def waiting(file = '/run/reboot-required.pkgs')
      read(file).to_s.split("\n")
    end

    def read(path)
      ::File.read(path).strip
    rescue SystemCallError
      nil
    end
  end
end
