# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'kubernetes::upkeep' do
  platform(*PLATFORMS.first)
  default_attributes['causeway']['cluster'] = 'research'
  default_attributes['causeway']['name'] = 'master-1'
  default_attributes['causeway']['api'] = 'api.research.internal:6443'

  it 'renews certificates, wherever it is' do
    expect(chef_run).to start_systemd_unit('causeway-certificates.timer')
  end

  it 'copies nothing where no bucket is named, and hands out no tokens' do
    expect(chef_run).not_to start_systemd_unit('causeway-etcd-snapshot.timer')
    expect(chef_run).not_to start_systemd_unit('causeway-audit-ship.timer')
    expect(chef_run).not_to start_systemd_unit('causeway-join-token.timer')
  end

  it 'approves certificates of kubelets, wherever it is' do
    expect(chef_run).to start_systemd_unit('causeway-join-approve.service')
  end

  context 'with a bucket and a store' do
    default_attributes['kubernetes']['control_plane'] = {
      'tokens' => true,
      'names' => { 'master-1' => 'master-1.research.internal' },
      'snapshots' => { 'bucket' => 'research-etcd', 'prefix' => 'etcd/', 'region' => 'us-west-2', 'interval' => 900 },
      'audit_copies' => { 'bucket' => 'research-audit', 'region' => 'us-west-2' },
    }
    default_attributes['kubernetes']['join'] = {
      'parameter' => '/causeway/research/node/kubernetes-join',
      'regions' => %w(us-east-1 us-west-2),
    }

    on_each_platform do
      it { is_expected.to start_systemd_unit('causeway-etcd-snapshot.timer') }
      it { is_expected.to start_systemd_unit('causeway-audit-ship.timer') }
      it { is_expected.to start_systemd_unit('causeway-join-token.timer') }
      it { is_expected.to start_systemd_unit('causeway-join-approve.service') }
    end

    it 'approves with its newest settings and program' do
      service = chef_run.systemd_unit('causeway-join-approve.service')
      expect(service).to subscribe_to('file[/etc/causeway/control-plane.json]').on(:restart).delayed
    end

    it 'copies as often as is wanted' do
      timer = chef_run.systemd_unit('causeway-etcd-snapshot.timer')
      expect(timer.content[:Timer][:OnUnitActiveSec]).to eq('900s')
    end

    it 'tells the programs what they need, and no secret' do
      said = JSON.parse(chef_run.file('/etc/causeway/control-plane.json').content)
      expect(said['snapshots']).to eq('bucket' => 'research-etcd', 'prefix' => 'etcd/', 'region' => 'us-west-2')
      expect(said['audit']).to eq('bucket' => 'research-audit', 'prefix' => 'audit/', 'region' => 'us-west-2')
      expect(said['masters']).to eq('master-1' => 'master-1.research.internal')
      expect(said['join']['regions']).to eq(%w(us-east-1 us-west-2))
    end
  end
end
