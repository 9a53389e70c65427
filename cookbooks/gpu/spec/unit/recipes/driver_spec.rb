# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'gpu::driver' do
  # Package names are the release's: Fauxhai need not know it.
  automatic_attributes['platform'] = 'ubuntu'
  automatic_attributes['platform_version'] = '24.04'

  before do
    stub_command('systemd-detect-virt --container --quiet').and_return(false)
    allow(Causeway::Gpus).to receive(:images).and_return(['linux-image-aws'])
    allow(Causeway::Gpus).to receive(:any?).and_return(true)
    allow(Causeway::Gpus).to receive(:reboot_for).and_return(reboot)
  end

  let(:reboot) { nil }

  context 'with a branch of the distribution' do
    override_attributes['gpu'] = { 'driver' => 580, 'family' => 'pascal' }

    it 'keeps nouveau away' do
      expect(chef_run).to render_file('/etc/modprobe.d/blacklist-nouveau.conf')
        .with_content(/^blacklist nouveau$/)
    end

    it 'installs it and stays with what was installed' do
      expect(chef_run).to install_apt_package(%w(nvidia-headless-580-server nvidia-utils-580-server nvidia-modprobe))
      expect(chef_run).to remove_apt_preference('nvidia-driver')
      expect(chef_run).not_to include_recipe('gpu::repository')
    end

    it 'builds the module, and reboots nothing' do
      expect(chef_run).to build_gpu_module('580')
      expect(chef_run).to note_gpu_reboot("NVIDIA's driver")
    end

    it 'keeps the driver loaded' do
      expect(chef_run).to enable_service('nvidia-persistenced')
      expect(chef_run).to start_service('nvidia-persistenced, now')
    end
  end

  context 'with modules that Ubuntu signed' do
    override_attributes['gpu'] = { 'driver' => 580, 'modules' => 'signed' }

    it 'builds none' do
      expect(chef_run).to install_apt_package(
        %w(
          linux-modules-nvidia-580-server-aws nvidia-headless-no-dkms-580-server nvidia-utils-580-server
          nvidia-modprobe
        )
      )
      expect(chef_run).to verify_gpu_module('580')
    end
  end

  context 'before a reboot' do
    let(:reboot) { 'nouveau has the GPUs until then' }
    override_attributes['gpu']['driver'] = 580

    it 'starts nothing that could not' do
      expect(chef_run).not_to start_service('nvidia-persistenced, now')
    end
  end

  context 'while an image is baked' do
    override_attributes['gpu']['driver'] = 580
    override_attributes['causeway']['baking'] = true

    it 'starts nothing' do
      expect(chef_run).to build_gpu_module('580')
      expect(chef_run).not_to start_service('nvidia-persistenced, now')
    end
  end

  context 'with an exact version' do
    override_attributes['gpu'] = { 'driver' => 580, 'driver_version' => '580.95.05' }

    it 'moves the packages to it' do
      expect(chef_run).to add_apt_preference('nvidia-driver').with(pin: 'version 580.95.05-*')
      expect(chef_run).to upgrade_apt_package(%w(nvidia-headless-580-server nvidia-utils-580-server nvidia-modprobe))
    end
  end

  context 'with what the GPUs can not run' do
    override_attributes['gpu'] = { 'driver' => 580, 'family' => 'pascal', 'open_kernel_modules' => true }

    it 'refuses' do
      expect { chef_run }.to raise_error(ArgumentError, /do not drive pascal/)
    end
  end
end
