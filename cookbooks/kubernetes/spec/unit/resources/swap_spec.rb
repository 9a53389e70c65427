# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'kubernetes_swap' do
  platform(*PLATFORMS.first)
  step_into :kubernetes_swap

  let(:container) { false }
  let(:swaps) { "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n" }

  before do
    stub_command('systemd-detect-virt --container --quiet').and_return(container)
    allow(File).to receive(:read).and_call_original
    allow(File).to receive(:exist?).and_call_original
    allow(File).to receive(:exist?).with('/etc/fstab').and_return(true)
    allow(File).to receive(:read).with('/etc/fstab').and_return("/dev/sda1 / ext4\n/dev/sda2 none swap sw 0 0\n")
    allow(File).to receive(:read).with('/proc/swaps').and_return(swaps)
  end

  recipe do
    kubernetes_swap 'off' do
      action :off
    end
  end

  it 'turns it off now and for good' do
    expect(chef_run).to run_execute('swapoff --all')
    expect(chef_run).to mask_systemd_unit('swap.target')
    expect(chef_run).to create_file('/etc/fstab')
      .with(content: "/dev/sda1 / ext4\n# off, for the kubelet: /dev/sda2 none swap sw 0 0\n")
  end

  context 'where there is none' do
    let(:swaps) { "Filename Type Size Used Priority\n" }

    it { is_expected.not_to run_execute('swapoff --all') }
  end

  context 'in a container' do
    let(:container) { true }

    it { is_expected.not_to run_execute('swapoff --all') }
  end
end
