# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'gpu::metrics' do
  override_attributes['gpu']['driver'] = 470
  override_attributes['software']['dcgm-exporter']['version'] = '4.8.2'
  override_attributes['causeway']['address'] = '10.200.0.11'

  before { allow(Causeway::Gpus).to receive(:any?).and_return(false) }

  it "has DCGM for the driver's CUDA, and the exporter that is pinned" do
    expect(chef_run).to install_apt_package('datacenter-gpu-manager-4-cuda11')
    expect(chef_run).to add_apt_preference('dcgm-exporter').with(pin: 'version /^([0-9]+:)?4[.]8[.]2-/')
    expect(chef_run).to upgrade_apt_package('datacenter-gpu-manager-exporter')
  end

  context 'for GPUs that CUDA 13 has no code for' do
    override_attributes['gpu']['driver'] = 580
    override_attributes['gpu']['family'] = 'pascal'

    it "has DCGM's diagnostics for CUDA 12" do
      expect(chef_run).to install_apt_package('datacenter-gpu-manager-4-cuda12')
    end
  end

  it 'listens at the private address, and starts where there are GPUs' do
    expect(chef_run).to render_file('/etc/systemd/system/nvidia-dcgm-exporter.service.d/causeway.conf')
      .with_content('DCGM_EXPORTER_LISTEN=10.200.0.11:9400')
    expect(chef_run).to enable_service('nvidia-dcgm-exporter')
    expect(chef_run).not_to start_service('nvidia-dcgm-exporter, now')
  end

  context 'where Kubernetes runs the exporter' do
    override_attributes['gpu']['dcgm']['exporter'] = false

    before do
      allow(Causeway::Gpus).to receive(:usable?).and_return(true)
      allow(Causeway::Place).to receive(:address_there?).and_return(true)
    end

    it 'is none' do
      expect(chef_run).to stop_service('nvidia-dcgm-exporter')
      expect(chef_run).to disable_service('nvidia-dcgm-exporter')
      expect(chef_run).not_to start_service('nvidia-dcgm-exporter, now')
    end
  end
end
