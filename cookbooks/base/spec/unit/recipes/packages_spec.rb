# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'base::packages' do
  override_attributes['base']['tools'] = %w(tmux curl)
  override_attributes['base']['packages'] = %w(zsh curl)

  it { is_expected.to install_package(%w(curl tmux zsh)) }
  context 'when a version is named' do
    override_attributes['base']['packages'] = %w(zsh tmux=3.4-1)

    it { is_expected.to install_package(%w(curl zsh)) }
    it { is_expected.to install_package('tmux').with(version: '3.4-1') }
  end

  it { is_expected.to install_package('netbase') }
  it { is_expected.to create_directory('/etc/causeway/secrets').with(mode: '0700') }
  it { is_expected.to create_cookbook_file('/etc/apt/apt.conf.d/50causeway-unasked') }
  it { is_expected.to periodic_apt_update('daily') }
  it { is_expected.to create_cookbook_file('/etc/apt/apt.conf.d/50causeway-lock') }

  context 'at the first boot of an image' do
    override_attributes['causeway']['first_boot'] = true

    it { is_expected.not_to periodic_apt_update('daily') }
  end

  it 'has needrestart without prompts' do
    expect(chef_run).to render_file('/etc/needrestart/conf.d/causeway.conf').with_content("$nrconf{restart} = 'a'")
  end
end
