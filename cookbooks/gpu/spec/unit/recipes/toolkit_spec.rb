# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'gpu::toolkit' do
  override_attributes['gpu'] = { 'driver' => 580, 'cuda' => '12.8' }

  it 'installs it' do
    expect(chef_run).to install_apt_package('cuda-toolkit-12-8')
    expect(chef_run).to create_cookbook_file('/etc/profile.d/cuda.sh')
  end
end
