# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'storage_mount' do
  platform(*PLATFORMS.first)
  step_into :storage_mount

  let(:container) { false }

  before { stub_command('systemd-detect-virt --container --quiet').and_return(container) }

  context 'created' do
    recipe do
      storage_mount '/data/a-b' do
        what 's3://sets/'
        type 'mount-s3'
        options %w(_netdev ro)
        environment 'AWS_PROFILE' => 'sets'
      end
    end

    let(:mount) { 'data-a\x2db.mount' }
    let(:automount) { 'data-a\x2db.automount' }

    it 'writes units by the names that systemd has for the path' do
      expect(chef_run).to create_systemd_unit(mount).with(
        content: {
          'Unit' => { 'Description' => 's3://sets/ at /data/a-b', 'StartLimitIntervalSec' => 0 },
          'Mount' => {
            'What' => 's3://sets/', 'Where' => '/data/a-b', 'Type' => 'mount-s3', 'Options' => '_netdev,ro',
            'TimeoutSec' => 30, 'Environment' => ['AWS_PROFILE=sets'],
          },
          'X-Causeway' => { 'Cookbook' => 'storage' },
        }
      )
      expect(chef_run).to enable_systemd_unit(automount)
    end

    it 'mounts at the first step into it, and not before' do
      expect(chef_run).to start_systemd_unit("start #{automount}")
      expect(chef_run).not_to start_systemd_unit(mount)
    end

    it 'remounts a changed one that is not in use' do
      expect(chef_run.systemd_unit(mount)).to notify('execute[unmount /data/a-b, which has changed]').immediately
      expect(chef_run.execute('unmount /data/a-b, which has changed').ignore_failure).to be(true)
    end

    context 'in a container' do
      let(:container) { true }

      it 'leaves it to the next boot' do
        expect(chef_run).not_to start_systemd_unit("start #{automount}")
      end
    end
  end

  context 'removed' do
    recipe do
      storage_mount '/data' do
        action :remove
      end
    end

    it 'stops and forgets it' do
      %w(data.automount data.mount).each do |unit|
        expect(chef_run).to stop_systemd_unit(unit)
        expect(chef_run).to delete_systemd_unit(unit)
      end
    end
  end
end
