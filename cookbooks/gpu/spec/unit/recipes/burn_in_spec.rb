# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'gpu::burn_in' do
  override_attributes['gpu']['driver'] = 580

  it "has NVIDIA's NCCL, built for a CUDA with code for all GPUs" do
    expect(chef_run).to add_apt_preference('libnccl2').with(pin: 'version *+cuda12.*')
    expect(chef_run).to install_apt_package('libnccl2')
  end

  context 'for the last branch of Kepler' do
    override_attributes['gpu']['driver'] = 470

    it 'is that for CUDA 11' do
      expect(chef_run).to add_apt_preference('libnccl2').with(pin: 'version *+cuda11.*')
    end
  end
end
