# frozen_string_literal: true

require 'chefspec'

describe 'gpu::toolkit' do
  platform 'ubuntu', '24.04'

  override_attributes['gpu'] = { 'driver' => 580, 'cuda' => '12.8' }

  it 'installs it' do
    expect(chef_run).to install_apt_package('cuda-toolkit-12-8')
    expect(chef_run).to create_cookbook_file('/etc/profile.d/cuda.sh')
  end
end
