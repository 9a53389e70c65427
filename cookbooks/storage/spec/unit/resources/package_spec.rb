# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'storage_package' do
  platform(*PLATFORMS.first)
  step_into :storage_package

  let(:there) { '' }

  before do
    stubs_for_provider('storage_package[mount-s3]') do |provider|
      format = '--showformat=${db:Status-Status} ${Version}'
      allow(provider).to receive_shell_out('dpkg-query', '--show', format, 'mount-s3', stdout: there)
    end
  end

  context 'with a checksum' do
    recipe do
      storage_package 'mount-s3' do
        version '1.24.0'
        url 'https://s3.test/mount-s3.deb'
        checksum 'a' * 64
      end
    end

    # Known once the run has begun.
    let(:file) { chef_run && "#{Chef::Config[:file_cache_path]}/mount-s3-1.24.0.deb" }

    it 'fetches what has it, and installs what that needs' do
      expect(chef_run).to create_remote_file(file).with(checksum: 'a' * 64)
      expect(chef_run.execute('apt-get install mount-s3').command).to end_with(file)
      expect(chef_run).not_to install_apt_package('gpg')
    end

    context 'that is installed' do
      let(:there) { 'installed 1.24.0' }

      it 'fetches nothing' do
        expect(chef_run).not_to create_remote_file(file)
        expect(chef_run).not_to run_execute('apt-get install mount-s3')
      end
    end

    context 'that is there in another version' do
      let(:there) { 'installed 1.19.0-1' }

      it { is_expected.to run_execute('apt-get install mount-s3') }
    end
  end

  context 'with a signature' do
    recipe do
      storage_package 'mount-s3' do
        version '1.24.0'
        url 'https://s3.test/mount-s3.deb'
        key_url 'https://s3.test/KEYS'
        key_fingerprint '673FE4061506BB469A0EF857BE397A52B086DA5A'
      end
    end

    it 'checks it by the one key' do
      run = chef_run
      cache = "#{Chef::Config[:file_cache_path]}/mount-s3-1.24.0"
      expect(run).to create_remote_file("#{cache}.asc").with(source: ['https://s3.test/mount-s3.deb.asc'])
      check = run.remote_file("#{cache}.deb").verify.first.instance_variable_get(:@command)
      expect(check).to include('VALIDSIG', '673FE40615')
    end
  end
end
