# frozen_string_literal: true

module Causeway
  # What is known of containerd by its version.
  module Containerd
    # The pause image that kubeadm of a minor wants (cmd/kubeadm/app/constants, PauseVersion).
    PAUSE = { '1.33' => '3.10', '1.34' => '3.10.1', '1.35' => '3.10.1' }.freeze
    NEWEST_PAUSE = '3.10.2'

    # The last Kubernetes minor that was tested with containerd 1.x.
    LAST_FOR_1 = '1.35'

    module_function

    # 3 from containerd 2.0 on, 2 before.
    def config_version(version)
      at_least?(version, '2.0') ? 3 : 2
    end

    def at_least?(version, other)
      Gem::Version.new(version[/\A\d+(\.\d+)*/]) >= Gem::Version.new(other)
    end

    # `containerd --version` prints "containerd github.com/containerd/containerd v2.1.4 <commit>"; Debian's
    # has neither the v nor the commit.
    def version_in(output)
      output[/\Acontainerd\s+\S+\s+v?(\d+\.\d+(\.\d+)?)/, 1]
    end

    # Of the containerd that is installed; nil where it does not say.
    def installed
      version_in(Mixlib::ShellOut.new('containerd', '--version').run_command.stdout)
    end

    # The version as apt_preferences(5) has it: all packages of 2.1.4, or of 2.1.
    def pin(version)
      version.count('.') < 2 ? "#{version}.*" : "#{version}-*"
    end

    def sandbox_image(kubernetes)
      "registry.k8s.io/pause:#{PAUSE.fetch(kubernetes.to_s, NEWEST_PAUSE)}"
    end

    # Whether containerd is too old for the kubelet.
    def outlived?(version, kubernetes)
      !at_least?(version, '2.0') && Gem::Version.new(kubernetes) > Gem::Version.new(LAST_FOR_1)
    end

    # What a registry is called where containerd asks it: docker.io is only a name.
    def server(registry)
      return if registry == '_default'

      registry == 'docker.io' ? 'https://registry-1.docker.io' : "https://#{registry}"
    end
  end
end
