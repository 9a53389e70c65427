# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'storage_disk' do
  platform(*PLATFORMS.first)
  step_into :storage_disk

  let(:labelled) { nil }
  let(:on_it) { [{ 'type' => 'disk' }] }
  let(:signature) { nil }

  before do
    allow(Causeway::Disks).to receive(:labelled).with('scratch').and_return(labelled)
    allow(Causeway::Disks).to receive(:tree).and_return(on_it)
    allow(Causeway::Disks).to receive(:signature).and_return(signature)
    allow(File).to receive(:blockdev?).and_return(true)
  end

  context 'on one disk' do
    recipe do
      storage_disk 'scratch' do
        devices ['/dev/sdb']
        path '/scratch'
        mode '1777'
      end
    end

    it 'formats what is blank, and mounts it by its label' do
      expect(chef_run).to run_execute('mkfs.xfs /dev/sdb').with(command: %w(mkfs.xfs -L scratch /dev/sdb))
      expect(chef_run).to start_systemd_unit('scratch.mount')
      expect(chef_run.systemd_unit('scratch.mount').content['Mount']['What']).to eq('/dev/disk/by-label/scratch')
      expect(chef_run).to create_directory('/scratch').with(mode: '1777')
    end

    context 'that has the file system already' do
      let(:labelled) { '/dev/sdb' }

      it 'mounts it as it is' do
        expect(chef_run).not_to run_execute('mkfs.xfs /dev/sdb')
        expect(chef_run).to start_systemd_unit('scratch.mount')
      end
    end

    context 'with partitions' do
      let(:on_it) { [{ 'type' => 'disk', 'pttype' => 'gpt', 'children' => [{ 'path' => '/dev/sdb1' }] }] }

      it 'leaves it alone, and says why' do
        expect { chef_run }.to raise_error(RuntimeError, /sdb holds partitions of 1, and is left alone/)
      end
    end

    context 'with a signature that only blkid knows' do
      let(:signature) { '/dev/sdb: TYPE="zfs_member"' }

      it 'leaves it alone' do
        expect { chef_run }.to raise_error(RuntimeError, /zfs_member/)
      end
    end

    context 'that is not there' do
      before { allow(File).to receive(:blockdev?).and_return(false) }

      it 'says so' do
        expect { chef_run }.to raise_error(RuntimeError, %r{disk /dev/sdb not found})
      end
    end
  end

  context 'on several' do
    recipe do
      storage_disk 'scratch' do
        devices %w(/dev/sdb /dev/sdc)
        path '/scratch'
        filesystem 'ext4'
      end
    end

    it 'stripes them' do
      expect(chef_run).to run_execute('vgcreate scratch').with(command: %w(vgcreate scratch /dev/sdb /dev/sdc))
      expect(chef_run.execute('lvcreate scratch').command).to include('--stripes', '2')
      expect(chef_run).to run_execute('mkfs.ext4 /dev/scratch/scratch')
    end
  end

  context 'on none' do
    recipe do
      storage_disk 'scratch' do
        path '/scratch'
      end
    end

    it 'mounts nothing' do
      expect(chef_run).not_to create_systemd_unit('scratch.mount')
    end
  end
end
