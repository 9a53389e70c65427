# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'gpu::fabric_manager' do
  before do
    allow(Causeway::Gpus).to receive(:version_on_disk).and_return('580.95.05')
    allow(Causeway::Gpus).to receive(:switches?).and_return(true)
    allow(Causeway::Gpus).to receive(:any?).and_return(true)
  end

  context 'with Hopper GPUs' do
    override_attributes['gpu'] = { 'driver' => 580, 'family' => 'hopper' }

    it "has the driver's version" do
      expect(chef_run).to add_apt_preference('fabric-manager').with(pin: 'version 580.95.05-*')
      expect(chef_run).to upgrade_apt_package(%w(nvidia-fabricmanager-580))
      expect(chef_run).to verify_gpu_same_version('nvidia-fabricmanager-580').with(branch: 580)
      expect(chef_run).to start_service('nvidia-fabricmanager, now')
      expect(chef_run).not_to install_apt_package('nvlsm')
    end
  end

  context 'with Blackwell GPUs' do
    override_attributes['gpu'] = { 'driver' => 580, 'family' => 'blackwell' }

    it 'has the subnet manager' do
      expect(chef_run).to install_apt_package('nvlsm')
      expect(chef_run).to create_file('/etc/modules-load.d/nvlsm.conf').with(content: "ib_umad\n")
    end
  end
end
