# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'gpu::health' do
  override_attributes['gpu']['count'] = 4
  override_attributes['causeway']['name'] = 'titan-01'

  it 'brings the check and its settings' do
    expect(chef_run).to create_remote_directory('/usr/local/lib/causeway/gpu_health')
    expect(chef_run).to render_file('/etc/causeway/gpu-health.json')
      .with_content('"count": 4').with_content('"node": "titan-01"')
  end

  it 'starts the timer' do
    expect(chef_run).to start_systemd_unit('causeway-gpu-health.timer')
  end

  it 'cordons, and leaves no feature behind' do
    expect(chef_run).to render_file('/etc/causeway/gpu-health.json').with_content('"cordon": true')
    expect(chef_run).to delete_file('/etc/kubernetes/node-feature-discovery/features.d/causeway-gpu')
  end

  context 'where unhealthy nodes are tainted' do
    override_attributes['gpu']['health']['taint'] = true

    it 'writes a feature, and does not cordon' do
      expect(chef_run).to create_directory('/etc/kubernetes/node-feature-discovery/features.d')
      expect(chef_run).to render_file('/etc/causeway/gpu-health.json')
        .with_content('"cordon": false').with_content('features.d/causeway-gpu')
      expect(chef_run.systemd_unit('causeway-gpu-health.service').content[:Service][:ReadWritePaths])
        .to eq('/var/lib/causeway /etc/kubernetes/node-feature-discovery/features.d')
    end
  end

  context 'while an image is baked' do
    override_attributes['causeway']['baking'] = true

    it 'starts at the first boot' do
      expect(chef_run).to enable_systemd_unit('causeway-gpu-health.timer')
      expect(chef_run).not_to start_systemd_unit('causeway-gpu-health.timer')
    end
  end
end
