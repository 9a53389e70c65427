# frozen_string_literal: true

module Causeway
  # Which wheels run on which GPUs. A wheel holds code for the architectures it was built for, and its CUDA asks
  # for a driver:
  #
  # | GPUs | PyTorch's build | driver | newest PyTorch | TensorFlow on the GPUs |
  # |---|---|---|---|---|
  # | kepler (3.7) | cu118 | 450 | 2.3 | no |
  # | maxwell (5.2) | cu126 | 525 | 2.14 | no |
  # | pascal (6.x), volta (7.0) | cu126 | 525 | 2.14 | yes |
  # | turing, ampere, ada, hopper | cu126, from 2.15 on cu130 | 525, 580 | | yes, with cu126 |
  # | blackwell | cu130 | 580 | | no |
  #
  # Sources. PyTorch: manywheel/build_cuda.sh (`11.8` adds 3.7; cuDNN 9, in PyTorch from 2.4 on, begins with 5.0);
  # the support matrix of 2.14 and the end of cu126 in 2.15 (pytorch/pytorch#190355, #190385). TensorFlow: the
  # release notes of 2.17 (no 5.x any more) and .bazelrc (`sm_60,sm_70,sm_80,sm_89,compute_90`); its CUDA 12
  # libraries fit beside those of cu126, but bring another cuDNN than cu130 under the same name. Drivers:
  # https://docs.nvidia.com/deploy/cuda-compatibility/ (minor version compatibility).
  module Wheels
    # What drivers each build needs.
    DRIVERS = { 'cu118' => 450, 'cu126' => 525, 'cu130' => 580 }.freeze

    # The first PyTorch without cu126.
    AFTER_CU126 = '2.15'

    OLD = { 'torch' => '2.14.1', 'torchvision' => '0.29.2' }.freeze
    KEPLER = {
      'torch' => '2.3.1', 'torchvision' => '0.18.1', 'numpy' => '1.26.4', 'opencv' => '4.11.0.86',
    }.freeze

    # Family => its build, the newest versions with code for it, and whether TensorFlow has any.
    FAMILIES = {
      'kepler' => { build: 'cu118', newest: KEPLER, tensorflow: false },
      'maxwell' => { build: 'cu126', newest: OLD, tensorflow: false },
      'pascal' => { build: 'cu126', newest: OLD, tensorflow: true },
      'volta' => { build: 'cu126', newest: OLD, tensorflow: true },
      'turing' => { build: 'cu126', newest: {}, tensorflow: true },
      'ampere' => { build: 'cu126', newest: {}, tensorflow: true },
      'ada' => { build: 'cu126', newest: {}, tensorflow: true },
      'hopper' => { build: 'cu126', newest: {}, tensorflow: true },
      'blackwell' => { build: 'cu130', newest: {}, tensorflow: false },
    }.freeze

    # An image for several kinds of GPUs: what most of them run.
    ANY = FAMILIES.fetch('hopper')

    module_function

    # The build for a machine: `driver` and `family` are the GPUs', nil where there are none. GPUs whose driver
    # is too old are an ArgumentError.
    def build(driver:, family:, torch:)
      return 'cpu' if driver.nil?

      gpus = FAMILIES.fetch(family, ANY)
      build = gpus[:build]
      build = 'cu130' if build == 'cu126' && gpus[:newest].empty? && !older?(torch, AFTER_CU126)
      return build if driver >= DRIVERS.fetch(build)

      raise ArgumentError, "PyTorch's build #{build}, which #{family || 'these'} GPUs need, asks for driver " \
                           "#{DRIVERS.fetch(build)} or later, not #{driver}"
    end

    # Versions for a family: those that are pinned, but none without code for the GPUs.
    def versions(pins, family)
      newest = FAMILIES.fetch(family, ANY)[:newest]
      pins.to_h do |name, version|
        [name, newest.key?(name) && older?(newest[name], version) ? newest[name] : version]
      end
    end

    # One line of a requirements file each.
    def requirements(packages, versions, build:, family:)
      packages.reject { |_, package| package.nil? }.map do |name, package|
        version = versions.fetch(name) { raise ArgumentError, "node['software'] has no version of #{name}" }
        extra = name == 'tensorflow' && tensorflow_on_gpus?(build, family) ? '[and-cuda]' : ''
        local = %w(torch torchvision).include?(name) ? "+#{build}" : ''
        "#{package}#{extra}==#{version}#{local}"
      end
    end

    def tensorflow_on_gpus?(build, family)
      build == 'cu126' && FAMILIES.fetch(family, ANY)[:tensorflow]
    end

    def older?(version, other)
      Gem::Version.new(version) < Gem::Version.new(other)
    end
  end
end
