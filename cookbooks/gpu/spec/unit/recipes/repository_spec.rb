# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'gpu::repository' do
  # Package names are the release's: Fauxhai need not know it.
  automatic_attributes['platform'] = 'ubuntu'
  automatic_attributes['platform_version'] = '24.04'

  context 'for the toolkit and DCGM' do
    override_attributes['gpu']['driver'] = 580

    it 'has no drivers come from it' do
      expect(chef_run).to create_base_apt_source('cuda').with(
        uri: 'https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64', suites: ['/']
      )
      expect(chef_run).to add_apt_preference('zz-no-drivers-from-cuda').with(pin_priority: '-1')
    end
  end

  context 'for drivers' do
    override_attributes['gpu'] = { 'driver' => 595, 'source' => 'nvidia' }

    it 'holds them to the branch' do
      expect(chef_run).to create_base_apt_source('cuda').with(pin_version: '595.*')
      expect(chef_run).to remove_apt_preference('zz-no-drivers-from-cuda')
    end
  end

  context 'with a mirror' do
    override_attributes['gpu']['repository']['uri'] = 'https://mirror.test/cuda'

    it 'takes its key from there' do
      expect(chef_run).to create_base_apt_source('cuda').with(key_url: 'https://mirror.test/cuda/3bf863cc.pub')
    end
  end
end
