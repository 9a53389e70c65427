# frozen_string_literal: true

require 'chefspec'

describe 'gpu::default' do
  platform 'ubuntu', '24.04'

  before do
    stub_command('systemd-detect-virt --container --quiet').and_return(false)
    allow(Causeway::Cards).to receive(:any?).and_return(false)
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
