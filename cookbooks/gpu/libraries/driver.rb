# frozen_string_literal: true

module Causeway
  # NVIDIA's driver: which packages make a branch, and what is on this machine.
  module Driver
    # Architectures before the GPU System Processor, which the open kernel modules run on.
    CLOSED_ONLY = %w(kepler maxwell pascal volta).freeze
    OPEN_ONLY = %w(blackwell).freeze

    # From here on, packages of NVIDIA's repository for Ubuntu have no branch in their names
    # (Driver Installation Guide, r590, 4.1.1).
    UNVERSIONED = 590

    # The first CUDA toolkit that NVIDIA's repository has for a release.
    FIRST_TOOLKIT = { 'jammy' => '11.7', 'noble' => '12.5', 'bookworm' => '12.3', 'trixie' => '13.0' }.freeze

    # What the release is called in NVIDIA's repository.
    REPOSITORY = 'https://developer.download.nvidia.com/compute/cuda/repos'

    # The branches that Debian 12 has, as its packages are named.
    BOOKWORM = { 470 => 'nvidia-tesla-470', 535 => 'nvidia' }.freeze

    module_function

    # What can't work, in words; nil where nothing is known against it.
    def objection(branch:, family:, open:)
      return "node['gpu']['driver'] is not set: which branch, like 580?" if branch.nil?
      return "the open kernel modules do not drive #{family} GPUs" if open && CLOSED_ONLY.include?(family)
      return "#{family} GPUs need the open kernel modules" if !open && OPEN_ONLY.include?(family)
      return "the open kernel modules begin with branch 515, not #{branch}" if open && branch < 515

      nil
    end

    # Packages of a branch without anything for screens. `source` is `distribution` or `nvidia`.
    def packages(branch:, open:, source:, platform:)
      if platform == 'ubuntu'
        source == 'nvidia' ? ubuntu_from_nvidia(branch, open) : ubuntu(branch, open)
      else
        source == 'nvidia' ? debian_from_nvidia(open) : debian(branch, open)
      end
    end

    def ubuntu(branch, open)
      ["nvidia-headless-#{branch}-server#{'-open' if open}", "nvidia-utils-#{branch}-server", 'nvidia-modprobe']
    end

    # The same with modules that Ubuntu built and signed, for the kernels whose images these are.
    def signed(branch:, open:, images:)
      server = "#{branch}-server#{'-open' if open}"
      modules = flavours(images).map { |flavour| "linux-modules-nvidia-#{server}-#{flavour}" }
      raise ArgumentError, 'Ubuntu has signed modules for its own kernels alone: none is installed' if modules.empty?

      [*modules, "nvidia-headless-no-dkms-#{server}", "nvidia-utils-#{branch}-server", 'nvidia-modprobe']
    end

    # linux-image-generic-hwe-24.04, linux-image-aws → generic-hwe-24.04, aws
    def flavours(images)
      metas = images.grep_v(/-\d+\.\d+\.\d+-/).grep_v(/-dbg\z/)
      metas.map { |image| image.sub(/\Alinux-image-(unsigned-)?/, '') }.uniq.sort
    end

    def ubuntu_from_nvidia(branch, open)
      flavour = open ? '-open' : ''
      return ["nvidia-dkms#{flavour}", 'libnvidia-compute', 'nvidia-persistenced', 'nvidia-modprobe'] if
        branch >= UNVERSIONED

      [
        "nvidia-dkms-#{branch}#{flavour}", "libnvidia-compute-#{branch}", "nvidia-compute-utils-#{branch}",
        "nvidia-utils-#{branch}", 'nvidia-modprobe',
      ]
    end

    def debian(branch, open)
      prefix = BOOKWORM.fetch(branch) do
        raise ArgumentError, "Debian has the branches #{BOOKWORM.keys.join(' and ')}, not #{branch}: set " \
                             "node['gpu']['source'] to nvidia"
      end
      cuda = prefix == 'nvidia' ? 'libcuda1' : "lib#{prefix}-cuda1"
      kernel = open ? 'nvidia-open-kernel-dkms' : "#{prefix}-kernel-dkms"
      [kernel, cuda, "#{prefix}-smi", 'nvidia-persistenced', 'nvidia-modprobe']
    end

    def debian_from_nvidia(open)
      [open ? 'nvidia-kernel-open-dkms' : 'nvidia-kernel-dkms', 'nvidia-driver-cuda', 'nvidia-persistenced']
    end

    # Everything of the driver, by any source: globs for apt_preferences(5). The container toolkit is not part of
    # it, though its packages begin alike.
    def family_of_packages
      %w(
        nvidia-dkms* nvidia-driver* nvidia-headless* nvidia-kernel* nvidia-open* nvidia-utils* nvidia-compute-utils*
        nvidia-firmware* nvidia-persistenced nvidia-modprobe nvidia-settings nvidia-smi nvidia-fabricmanager*
        nvidia-imex* nvidia-xconfig libnvidia-cfg* libnvidia-common* libnvidia-compute* libnvidia-decode*
        libnvidia-encode* libnvidia-extra* libnvidia-fbc* libnvidia-gl* libnvidia-ml* libnvidia-nscq* libcuda1
        cuda-drivers* xserver-xorg-video-nvidia*
      )
    end

    def fabric_packages(branch:, source:, platform:)
      unversioned = source == 'nvidia' && (platform != 'ubuntu' || branch >= UNVERSIONED)
      [unversioned ? 'nvidia-fabricmanager' : "nvidia-fabricmanager-#{branch}"]
    end

    # Meta packages of the headers of all kernels that are installed, by their images' names.
    def headers(images, release)
      wanted = flavours(images)
      wanted.empty? ? ["linux-headers-#{release}"] : wanted.map { |flavour| "linux-headers-#{flavour}" }
    end

    # NVIDIA's repository for a release, `ubuntu2404/x86_64`.
    def repository(platform:, version:, machine:)
      release = platform == 'ubuntu' ? version.delete('.') : version[/\A\d+/]
      "#{REPOSITORY}/#{platform}#{release}/#{machine == 'aarch64' ? 'sbsa' : machine}"
    end

    # The key that signs it.
    def repository_key(repository)
      "#{repository}/3bf863cc.pub"
    end

    # The toolkit's package, or the first of the same major version that there is for the release: it runs on
    # the same drivers (https://docs.nvidia.com/deploy/cuda-compatibility/, minor version compatibility).
    def toolkit(asked, codename)
      first = FIRST_TOOLKIT.fetch(codename, asked)
      version = [asked, first].max_by { |each| Gem::Version.new(each) }
      unless version.split('.').first == asked.split('.').first
        raise ArgumentError, "NVIDIA has no CUDA #{asked} for #{codename}: it begins with #{first}"
      end

      "cuda-toolkit-#{version.tr('.', '-')}"
    end

    # The major version of CUDA to have programs of, for a branch and the GPUs' family. CUDA 13 has no code for
    # GPUs before Turing, whose last branch has it all the same: DCGM's diagnostics take those for CUDA 12 there
    # (NVIDIA/DCGM, nvvs/include/TestFramework.inl, `GetCompatibleCudaMajorVersion`).
    def cuda_major(branch, family = nil)
      return 11 if branch < 525

      branch < 580 || CLOSED_ONLY.include?(family) ? 12 : 13
    end
  end
end
