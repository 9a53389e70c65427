# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'gpu::containers' do
  let(:packages) do
    %w(nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1)
  end

  context 'with a pin' do
    override_attributes['software']['nvidia-container-toolkit']['version'] = '1.20.0'

    it 'holds all its packages to it' do
      expect(chef_run).to create_base_apt_source('nvidia-container-toolkit').with(
        pin_packages: packages, pin_version: '1.20.0-*'
      )
      expect(chef_run).to upgrade_apt_package(packages)
    end
  end

  describe 'how containers ask for GPUs' do
    let(:tool) { 'how containers ask for GPUs' }

    it "is NVIDIA's way" do
      expect(chef_run).not_to run_execute(tool)
    end

    context 'on nodes' do
      override_attributes['gpu']['container_toolkit']['devices'] = 'mounts'

      it 'is by mounts, which not every image can make' do
        expect(chef_run).to run_execute(tool).with(
          command: %w(nvidia-ctk config --in-place
                      --set accept-nvidia-visible-devices-envvar-when-unprivileged=false
                      --set accept-nvidia-visible-devices-as-volume-mounts=true)
        )
      end

      it 'is said once' do
        allow(Causeway::Toolkit).to receive(:says?).and_return(true)
        expect(chef_run).not_to run_execute(tool)
      end
    end
  end

  context 'without' do
    it 'takes the newest, once' do
      expect(chef_run).to install_apt_package(packages)
    end
  end
end
