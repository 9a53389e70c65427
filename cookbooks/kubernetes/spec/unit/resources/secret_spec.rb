# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'kubernetes_secret' do
  platform(*PLATFORMS.first)
  step_into :kubernetes_secret

  let(:file) { '/etc/causeway/secrets/kubernetes-join.yaml' }

  context 'that is fetched' do
    recipe do
      kubernetes_secret '/etc/causeway/secrets/kubernetes-join.yaml' do
        parameter '/causeway/research/node/kubernetes-join'
        region 'us-west-2'
      end
    end

    it 'does not fail if the secret does not exist yet' do
      expect(chef_run).to run_execute("fetch #{file}").with(
        command: [
          '/usr/local/sbin/causeway-join-fetch', '--wait', '120', '--region', 'us-west-2',
          '/causeway/research/node/kubernetes-join', file,
        ],
        returns: [0, 75]
      )
    end

    it 'is looked for again until the machine has joined' do
      expect(chef_run).to start_systemd_unit('causeway-join.timer')
      unit = chef_run.systemd_unit('causeway-join.service')
      expect(unit.content[:Unit][:ConditionPathExists]).to eq('!/var/lib/kubelet/pki/kubelet-client-current.pem')
    end
  end

  context 'that is of no more use' do
    recipe do
      kubernetes_secret 'x' do
        file '/etc/causeway/secrets/kubernetes-join.yaml'
        action :forget
      end
    end

    before do
      allow(File).to receive(:exist?).and_call_original
      allow(File).to receive(:exist?).with('/etc/systemd/system/causeway-join.timer').and_return(true)
    end

    it 'is taken away, and so is the timer' do
      expect(chef_run).to delete_file(file)
      expect(chef_run).to stop_systemd_unit('causeway-join.timer')
    end
  end
end
