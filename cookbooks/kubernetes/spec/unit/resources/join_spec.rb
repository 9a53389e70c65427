# frozen_string_literal: true

require_relative '../../spec_helper'

describe 'kubernetes_join' do
  platform(*PLATFORMS.first)
  step_into :kubernetes_join

  let(:secrets) { '/etc/causeway/secrets/kubernetes-join.yaml' }
  let(:config) { '/run/causeway/kubeadm.yaml' }
  let(:there) { [] }
  let(:brought) do
    {
      'token' => 'abcdef.0123456789abcdef',
      'ca_cert_hashes' => ["sha256:#{'a' * 64}"],
    }
  end

  before do
    allow(File).to receive(:exist?).and_call_original
    allow(File).to receive(:exist?).with(%r{\A/(etc/kubernetes|var/lib/kubelet)/}) do |path|
      there.include?(File.basename(path))
    end
    allow(File).to receive(:read).and_call_original
    allow(File).to receive(:read).with(secrets).and_return(YAML.dump(brought))
    allow(File).to receive(:read).with('/etc/kubernetes/kubeadm-unfinished').and_return("kubeadm join\n")
  end

  context 'by a worker' do
    recipe do
      kubernetes_join 'titan-01' do
        endpoint 'api.test:6443'
        secrets '/etc/causeway/secrets/kubernetes-join.yaml'
      end
    end

    it 'keeps the token out of the command, and of the log' do
      expect(chef_run).to run_execute('kubeadm join').with(command: ['kubeadm', 'join', '--config', config])
      expect(chef_run).to create_file(config).with(mode: '0600', sensitive: true)
      expect(chef_run).to delete_file(config)
    end

    context 'with the authority' do
      let(:brought) { { 'token' => 'abcdef.0123456789abcdef', 'ca' => "-----BEGIN CERTIFICATE-----\nMIIB\n" } }

      it 'knows the API by it' do
        discovery = '/run/causeway/kubernetes-discovery.conf'
        expect(chef_run).to create_file(discovery).with(mode: '0600', sensitive: true)
        expect(chef_run).to delete_file(discovery)
      end
    end

    it 'has nothing to forget' do
      expect(chef_run).not_to run_execute('forget an attempt to join')
    end

    %w(bootstrap-kubelet.conf kubelet.conf ca.crt).each do |left|
      context "that got no certificate, and has #{left}" do
        let(:there) { [left] }

        it { is_expected.to run_execute('forget an attempt to join').with(command: %w(kubeadm reset --force)) }
        it { is_expected.to run_execute('kubeadm join') }
      end
    end

    context 'that is a node' do
      let(:there) { %w(kubelet-client-current.pem kubelet.conf ca.crt) }

      it { is_expected.not_to run_execute('forget an attempt to join') }
      it { is_expected.not_to run_execute('kubeadm join') }
    end

    context 'with a secret that is none' do
      let(:brought) { { 'token' => 'hunter2' } }

      it 'names what is wrong and does not show it' do
        expect { chef_run }.to raise_error(ArgumentError, /has no good token, ca_cert_hashes\z/)
      end
    end
  end

  context 'by a master' do
    recipe do
      kubernetes_join 'master-2' do
        endpoint 'api.test:6443'
        secrets '/etc/causeway/secrets/kubernetes-join.yaml'
        address '10.64.0.6'
        master true
      end
    end

    it 'joins the masters' do
      expect(chef_run).to run_execute('kubeadm join')
    end

    context 'that was brought its authority' do
      let(:there) { %w(ca.crt) }

      it { is_expected.not_to run_execute('forget an attempt to join') }
    end

    context 'that is a master' do
      let(:there) { %w(kubelet.conf) }

      it { is_expected.not_to run_execute('kubeadm join') }
    end

    context 'that was cut off' do
      let(:there) { %w(kubelet.conf kubeadm-unfinished) }

      it 'leaves it to people' do
        expect { chef_run }.to raise_error(RuntimeError, /`kubeadm join` did not end on this master/)
      end
    end
  end
end
