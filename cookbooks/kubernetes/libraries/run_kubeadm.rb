# frozen_string_literal: true

module Causeway
  module Kubeadm
    # kubeadm, run by a resource's action with a configuration that holds secrets.
    module Run
      # In memory, and gone when kubeadm is done.
      CONFIG = '/run/causeway/kubeadm.yaml'
      # It cannot distinguish a partial master from a complete one, and a reset may destroy a cluster: an administrator
      # decides.
      UNFINISHED = '/etc/kubernetes/kubeadm-unfinished'

      # What the block gives: the configuration, and a file of discovery that it names, or nil.
      def kubeadm(verb, *options)
        text, discovery = yield
        directory ::File.dirname(CONFIG) do
          mode '0700'
        end
        file Causeway::Kubeadm::DISCOVERY do
          content discovery
          mode '0600'
          sensitive true
          backup false
          not_if { discovery.nil? }
        end
        file CONFIG do
          content text
          mode '0600'
          sensitive true
          backup false
          verify 'kubeadm config validate --config %{path}'
        end
        mark(verb)
        execute "kubeadm #{verb}" do
          command ['kubeadm', verb, '--config', CONFIG, *options]
          timeout 1200
        end
        mark(nil)
      ensure
        [CONFIG, Causeway::Kubeadm::DISCOVERY].each do |path|
          file path do
            backup false
            action :delete
          end
        end
      end

      def mark(verb)
        return unless master?

        file UNFINISHED do
          content "kubeadm #{verb}\n"
          backup false
          action verb ? :create : :delete
        end
      end

      def master?
        !new_resource.respond_to?(:master) || new_resource.master
      end

      def unfinished?
        ::File.exist?(UNFINISHED)
      end

      def refuse_unfinished
        return unless unfinished?

        raise "`#{::File.read(UNFINISHED).strip}` did not end on this master. See `journalctl -u kubelet` " \
          "and `crictl ps -a`. If all is well, remove #{UNFINISHED}; if not, `kubeadm reset` and remove it"
      end

      # 'v1.36.2', of the kubeadm that is installed.
      def kubeadm_version
        shell_out!('kubeadm', 'version', '--output', 'short').stdout.strip
      end
    end
  end
end
