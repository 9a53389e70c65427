# frozen_string_literal: true

require 'json'
require 'net/http'
require 'yaml'

module Causeway
  # kubeadm's configuration as data (kubeadm.k8s.io/v1beta4, kubelet.config.k8s.io/v1beta1).
  module Kubeadm
    API = 'kubeadm.k8s.io/v1beta4'
    KUBELET_API = 'kubelet.config.k8s.io/v1beta1'
    AUDIT_POLICY = '/etc/kubernetes/audit-policy.yaml'
    AUDIT_LOGS = '/var/log/kubernetes/audit'
    AUTHENTICATION = '/etc/kubernetes/authentication/config.yaml'
    NO_ISSUER = {
      'apiVersion' => 'apiserver.config.k8s.io/v1beta1',
      'kind' => 'AuthenticationConfiguration',
      'jwt' => [],
    }.freeze
    ENCRYPTION = '/etc/kubernetes/encryption.yaml'
    # A kubeconfig, in memory while a node joins: what `discovery.file` of a JoinConfiguration names.
    DISCOVERY = '/run/causeway/kubernetes-discovery.conf'
    # The certificate of a worker's kubelet: with it, the machine has joined. The kubelet writes kubelet.conf before.
    CLIENT_CERTIFICATE = '/var/lib/kubelet/pki/kubelet-client-current.pem'
    CERTIFICATE = /-----BEGIN CERTIFICATE-----/.freeze
    TOKEN = /\A[a-z0-9]{6}\.[a-z0-9]{16}\z/.freeze
    CA_HASH = /\Asha256:[0-9a-f]{64}\z/.freeze
    CERTIFICATE_KEY = /\A[0-9a-f]{64}\z/.freeze

    module_function

    # Documents in one YAML file. Through JSON, so that Chef's own hashes and shared strings leave no trace.
    def yaml(*documents)
      documents.map { |document| YAML.dump(JSON.parse(JSON.generate(document))) }.join
    end

    # Values of `over` win; hashes are merged, lists replaced.
    def merge(under, over)
      under.merge(over.to_h) do |_, old, new|
        old.respond_to?(:merge) && new.respond_to?(:merge) ? merge(old, new) : new
      end
    end

    # The file with what a node needs to join. What it lacks is said without what it has. A master needs the key of
    # the certificates only where those were left in the cluster, rather than brought.
    def secrets(text, file)
      read = YAML.safe_load(text)
      read = {} unless read.is_a?(Hash)
      hashes = Array(read['ca_cert_hashes'])
      wrong = []
      wrong << 'token' unless TOKEN.match?(read['token'].to_s)
      wrong << 'ca' if read['ca'] && !CERTIFICATE.match?(read['ca'].to_s)
      wrong << 'ca_cert_hashes' if hashes.grep_v(CA_HASH).any? || (hashes.empty? && !read['ca'])
      wrong << 'certificate_key' if read['certificate_key'] && !CERTIFICATE_KEY.match?(read['certificate_key'].to_s)
      raise ArgumentError, "#{file} has no good #{wrong.join(', ')}" unless wrong.empty?

      read
    rescue Psych::SyntaxError
      raise ArgumentError, "#{file} is not YAML"
    end

    def registration(name)
      {
        'name' => name,
        'criSocket' => NodeRegistration::SOCKET,
        'imagePullPolicy' => 'IfNotPresent',
        'imagePullSerial' => false,
      }
    end

    def join(name:, endpoint:, secrets:, address: nil, master: false)
      document = {
        'apiVersion' => API,
        'kind' => 'JoinConfiguration',
        'discovery' => discovery(endpoint, secrets),
        'nodeRegistration' => registration(name),
      }
      return document unless master

      document.merge(
        'controlPlane' => {
          'localAPIEndpoint' => local_endpoint(address),
          'certificateKey' => secrets['certificate_key'],
        }.compact
      )
    end

    # By the cluster's authority where it was brought; else the API shows it, and it is known by its hash.
    def discovery(endpoint, secrets)
      return { 'file' => { 'kubeConfigPath' => DISCOVERY } } if secrets['ca']

      {
        'bootstrapToken' => {
          'apiServerEndpoint' => secrets['endpoint'] || endpoint,
          'token' => secrets['token'],
          'caCertHashes' => secrets['ca_cert_hashes'],
        },
      }
    end

    # The file that discovery reads: a kubeconfig whose user has the token. nil where there is none to write.
    def discovery_file(endpoint, secrets)
      return unless secrets['ca']

      server = "https://#{secrets['endpoint'] || endpoint}"
      authority = [secrets['ca']].pack('m0')
      yaml(
        'apiVersion' => 'v1',
        'kind' => 'Config',
        'clusters' => [
          { 'name' => 'causeway', 'cluster' => { 'server' => server, 'certificate-authority-data' => authority } },
        ],
        'users' => [{ 'name' => 'joining', 'user' => { 'token' => secrets['token'] } }],
        'contexts' => [{ 'name' => 'joining', 'context' => { 'cluster' => 'causeway', 'user' => 'joining' } }],
        'current-context' => 'joining'
      )
    end

    def init(name:, address:)
      {
        'apiVersion' => API,
        'kind' => 'InitConfiguration',
        'nodeRegistration' => registration(name),
        'localAPIEndpoint' => local_endpoint(address),
      }
    end

    def local_endpoint(address)
      { 'advertiseAddress' => address, 'bindPort' => 6443 }.compact
    end

    # `audit`: nil, or {'days', 'files', 'mib'}.
    def cluster(name:, endpoint:, pods:, services:, domain:, pods_per_node:, sans:, audit:, encrypted:)
      {
        'apiVersion' => API,
        'kind' => 'ClusterConfiguration',
        'clusterName' => name,
        'controlPlaneEndpoint' => endpoint,
        'networking' => { 'podSubnet' => pods, 'serviceSubnet' => services, 'dnsDomain' => domain },
        'apiServer' => api_server(sans, audit, encrypted),
        'controllerManager' => {
          'extraArgs' => arguments('node-cidr-mask-size' => node_prefix(pods_per_node)),
        },
        'etcd' => {
          'local' => {
            'dataDir' => '/var/lib/etcd',
            'extraArgs' => arguments('quota-backend-bytes' => 8 << 30),
          },
        },
      }
    end

    # Whether the API server that these documents make starts without a key to encrypt with.
    def names_no_key?(documents)
      documents.none? do |each|
        (each.dig('apiServer', 'extraArgs') || []).any? { |flag| flag['name'] == 'encryption-provider-config' }
      end
    end

    def api_server(sans, audit, encrypted)
      flags = {}
      volumes = []
      if audit
        flags['audit-policy-file'] = AUDIT_POLICY
        flags['audit-log-path'] = "#{AUDIT_LOGS}/audit.log"
        flags['audit-log-maxage'] = audit['days']
        flags['audit-log-maxbackup'] = audit['files']
        flags['audit-log-maxsize'] = audit['mib']
        volumes << volume('audit-policy', AUDIT_POLICY, 'File', true)
        volumes << volume('audit-logs', AUDIT_LOGS, 'DirectoryOrCreate', false)
      end
      if encrypted
        flags['encryption-provider-config'] = ENCRYPTION
        volumes << volume('encryption', ENCRYPTION, 'File', true)
      end
      { 'certSANs' => sans, 'extraArgs' => arguments(flags), 'extraVolumes' => volumes }
    end

    def volume(name, path, type, read_only)
      {
        'name' => name,
        'hostPath' => path,
        'mountPath' => path,
        'pathType' => type,
        'readOnly' => read_only,
      }
    end

    def arguments(flags)
      flags.map { |name, value| { 'name' => name, 'value' => value.to_s } }
    end

    # A node's pod range: twice as many addresses as pods, so that an address rests before it is used again.
    def node_prefix(pods_per_node)
      32 - Math.log2(pods_per_node * 2).ceil
    end

    # Whether a cluster answers at HOST:PORT. Nothing is sent that would have to be kept from an impostor.
    def answers?(endpoint)
      uri = URI("https://#{endpoint}/livez")
      Net::HTTP.start(
        uri.host, uri.port,
        use_ssl: true, verify_mode: OpenSSL::SSL::VERIFY_NONE, open_timeout: 5, read_timeout: 5
      ) { |http| http.get(uri.path) }
      true
    rescue SystemCallError, SocketError, Timeout::Error, OpenSSL::SSL::SSLError, EOFError
      false
    end
  end
end
