# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'kubernetes_package' do
  platform(*PLATFORMS.first)
  step_into :kubernetes_package

  context 'installed' do
    recipe { kubernetes_package 'kubelet' }

    it 'is held' do
      expect(chef_run).to install_apt_package('kubelet')
      expect(chef_run).to lock_apt_package('kubelet')
      expect(chef_run).not_to upgrade_apt_package('kubelet')
    end
  end

  context 'upgraded' do
    recipe do
      kubernetes_package 'kubelet' do
        action :upgrade
      end
    end

    it 'is held again' do
      expect(chef_run).to upgrade_apt_package('kubelet').with(options: ['--allow-change-held-packages'])
      expect(chef_run).to lock_apt_package('hold kubelet')
    end
  end
end
