# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'base::default' do
  before do
    stub_data_bag('users').and_return(%w(ada eve))
    stub_data_bag_item('users', 'ada').and_return('id' => 'ada', 'uid' => 2001, 'ssh_keys' => ['ssh-ed25519 AAAA'])
    stub_data_bag_item('users', 'eve').and_return('id' => 'eve', 'uid' => 2002, 'action' => 'remove')
    stub_data_bag('groups').and_return(['engineers'])
    stub_data_bag_item('groups', 'engineers').and_return(
      'id' => 'engineers', 'gid' => 3001, 'sudo' => true, 'members' => %w(ada eve)
    )
    stub_command('systemd-detect-virt --quiet --container').and_return(false)
  end

  PLATFORMS.each do |name, version|
    context "on #{name} #{version}" do
      platform name, version

      it 'converges' do
        expect { chef_run }.not_to raise_error
      end

      it 'has APT wait for its locks before anything uses it' do
        expect(chef_run.resource_collection.first.to_s).to eq('cookbook_file[/etc/apt/apt.conf.d/50causeway-lock]')
      end

      it 'does everything' do
        %w(packages name network users ssh time updates logs kernel metrics).each do |recipe|
          expect(chef_run).to include_recipe("base::#{recipe}")
        end
      end
    end
  end
end
