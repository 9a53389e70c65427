# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'storage_quota' do
  platform(*PLATFORMS.first)
  step_into :storage_quota

  recipe do
    storage_quota '/srv/home/ada' do
      id 2001
      mib 2048
      mountpoint '/srv'
    end
  end

  let(:project) { 0 }
  let(:limit) { 0 }

  before do
    allow(Causeway::Quotas).to receive(:project).and_return(project)
    allow(Causeway::Quotas).to receive(:limit).and_return(limit)
  end

  it 'makes the folder a project, and limits it' do
    expect(chef_run).to run_execute('project 2001 is /srv/home/ada')
      .with(command: ['xfs_quota', '-x', '-c', 'project -s -p /srv/home/ada 2001', '/srv'])
    expect(chef_run).to run_execute('limit of /srv/home/ada')
      .with(command: ['xfs_quota', '-x', '-c', 'limit -p bhard=2048m 2001', '/srv'])
  end

  context 'with a limit already' do
    let(:project) { 2001 }
    let(:limit) { 2048 }

    it 'does not walk through any files again' do
      expect(chef_run).not_to run_execute('project 2001 is /srv/home/ada')
      expect(chef_run).not_to run_execute('limit of /srv/home/ada')
    end
  end
end
