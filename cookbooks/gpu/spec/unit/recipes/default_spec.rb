# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'gpu::default' do
  # Package names are the release's: Fauxhai need not know it.
  automatic_attributes['platform'] = 'ubuntu'
  automatic_attributes['platform_version'] = '24.04'

  before do
    stub_command('systemd-detect-virt --container --quiet').and_return(false)
    allow(Causeway::Gpus).to receive(:any?).and_return(false)
  end

  context 'with a driver' do
    override_attributes['gpu']['driver'] = 580

    it 'brings driver, containers, metrics and health' do
      %w(driver containers metrics health).each do |name|
        expect(chef_run).to include_recipe("gpu::#{name}")
      end
    end

    it 'leaves out what was not asked for' do
      expect(chef_run).not_to include_recipe('gpu::fabric_manager')
      expect(chef_run).not_to include_recipe('gpu::toolkit')
    end
  end

  context 'with NVSwitch and a toolkit' do
    override_attributes['gpu'] = { 'driver' => 580, 'fabric_manager' => true, 'cuda' => '12.8' }

    it 'brings them' do
      expect(chef_run).to include_recipe('gpu::fabric_manager')
      expect(chef_run).to include_recipe('gpu::toolkit')
    end
  end
end
