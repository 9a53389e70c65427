# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'storage_copy' do
  platform(*PLATFORMS.first)
  step_into :storage_copy

  context 'created' do
    recipe do
      storage_copy 'homes-lab' do
        source '/srv/home'
        bucket 'copies'
        region 'us-east-1'
        prefix 'lab/home/'
        at '02:30'
        mountpoint '/srv'
        credentials '/etc/causeway/secrets/aws-credentials'
      end
    end

    let(:service) { chef_run.systemd_unit('causeway-copy-homes-lab.service').content }

    it 'copies at its time' do
      expect(chef_run).to start_systemd_unit('causeway-copy-homes-lab.timer')
      expect(chef_run).to enable_systemd_unit('causeway-copy-homes-lab.timer')
      content = chef_run.systemd_unit('causeway-copy-homes-lab.timer').content
      expect(content['Timer']['OnCalendar']).to eq('*-*-* 02:30:00 UTC')
    end

    it 'goes to its own folder' do
      expect(service['Service']['ExecStart']).to start_with('/usr/bin/rclone sync /srv/home :s3:copies/lab/home ')
    end

    it 'does nothing while the files or the credentials are away' do
      expect(service['Unit']).to include(
        'ConditionPathIsMountPoint' => '/srv', 'ConditionPathExists' => ['/etc/causeway/secrets/aws-credentials']
      )
    end
  end

  context 'removed' do
    recipe do
      storage_copy 'homes-lab' do
        action :remove
      end
    end

    it 'takes its units away' do
      expect(chef_run).to delete_systemd_unit('causeway-copy-homes-lab.timer')
      expect(chef_run).to delete_systemd_unit('causeway-copy-homes-lab.service')
    end
  end
end
