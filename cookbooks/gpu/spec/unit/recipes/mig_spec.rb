# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'gpu::mig' do
  before do
    allow(Causeway::Gpus).to receive(:usable?).and_return(true)
    allow(Causeway::Mig).to receive(:as_wanted?).and_return(false)
  end

  context "with a node's label" do
    override_attributes['kubernetes']['labels'] = { 'nvidia.com/mig.config' => 'all-1g.10gb' }

    it 'splits GPUs, and again at each boot before the kubelet starts' do
      expect(chef_run).to run_execute('instances of GPUs')
        .with(command: ['/usr/local/sbin/causeway-gpu-mig', 'apply', '1g.10gb'])
      expect(chef_run).to enable_systemd_unit('causeway-gpu-mig.service')
      expect(chef_run.systemd_unit('causeway-gpu-mig.service').content[:Unit][:Before]).to include('kubelet.service')
    end

    context 'when they are split so already' do
      before { allow(Causeway::Mig).to receive(:as_wanted?).with('1g.10gb').and_return(true) }

      it 'leaves them alone' do
        expect(chef_run).not_to run_execute('instances of GPUs')
      end
    end

    context 'without a driver' do
      before { allow(Causeway::Gpus).to receive(:usable?).and_return(false) }

      it 'waits for the boot' do
        expect(chef_run).not_to run_execute('instances of GPUs')
        expect(chef_run).to enable_systemd_unit('causeway-gpu-mig.service')
      end
    end
  end

  context 'without one' do
    it 'makes them whole' do
      expect(chef_run).to run_execute('instances of GPUs').with(command: ['/usr/local/sbin/causeway-gpu-mig', 'off'])
      expect(chef_run).to delete_systemd_unit('causeway-gpu-mig.service')
    end
  end
end
