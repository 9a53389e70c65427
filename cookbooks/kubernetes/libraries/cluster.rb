# frozen_string_literal: true

require 'json'
require 'time'

module Causeway
  # A cluster, spoken to by kubectl.
  class Cluster
    # kubectl failed: what it said.
    class Failed < RuntimeError
    end

    def initialize(kubeconfig)
      @kubeconfig = kubeconfig
    end

    # What kubectl prints. Failed where it fails.
    def kubectl(*arguments, input: nil)
      ran = run(*arguments, input: input)
      return ran.stdout unless ran.error?

      raise Failed, "kubectl #{arguments.join(' ')}: #{ran.stderr.strip}"
    end

    # The same, read as JSON; nil if the object does not exist.
    def get(*arguments)
      text = kubectl('get', *arguments, '--ignore-not-found', '--output', 'json')
      JSON.parse(text) unless text.strip.empty?
    end

    # [whether it went well, what it said]
    def try(*arguments, input: nil)
      ran = run(*arguments, input: input)
      [!ran.error?, ran.stderr.strip]
    end

    # 'v1.36.2', as kubeadm wrote it when it last upgraded the cluster.
    def version
      map = get('configmap', 'kubeadm-config', '--namespace', 'kube-system')
      map && map['data']['ClusterConfiguration'][/^kubernetesVersion: (\S+)$/, 1]
    end

    # Masters and their kubelets' versions, {'master-1' => 'v1.36.2'}.
    def masters
      listed = get('nodes', '--selector', 'node-role.kubernetes.io/control-plane')
      listed['items'].to_h { |each| [each['metadata']['name'], each['status']['nodeInfo']['kubeletVersion']] }
    end

    # A node by the one request that its own kubelet may make. Discovery, which kubectl does otherwise, would wait
    # for an API that is away several times.
    def own_node(name)
      JSON.parse(kubectl('get', '--raw', "/api/v1/nodes/#{name}", '--request-timeout', '10s'))
    end

    # Labels of a node; nil takes one away.
    def label(name, labels)
      patch = JSON.generate('metadata' => { 'labels' => labels })
      kubectl('patch', 'node', name, '--type', 'merge', '--patch', patch, '--request-timeout', '30s')
    end

    def node(name)
      get('node', name) || raise(Failed, "Node #{name} not found in the cluster")
    end

    def ready?(name)
      conditions = node(name)['status']['conditions'] || []
      conditions.any? { |each| each['type'] == 'Ready' && each['status'] == 'True' }
    end

    def cordoned?(name)
      node(name)['spec']['unschedulable'] == true
    end

    private

    def run(*arguments, input: nil)
      Mixlib::ShellOut.new('kubectl', '--kubeconfig', @kubeconfig, *arguments, input: input, timeout: 1800)
        .run_command
    end
  end

  # One node's turn among all: a Lease that only one can hold (coordination.k8s.io/v1). The API server decides
  # who was first: by the name when it is created, by the resource version when it is taken over.
  class Turn
    TIME = '%Y-%m-%dT%H:%M:%S.%6NZ'

    def initialize(cluster, namespace, name, holder, duration)
      @cluster = cluster
      @namespace = namespace
      @name = name
      @holder = holder
      @duration = duration
    end

    # Its holder, in words; nil if it has none, or we hold it.
    def taken_by
      lease = read
      return if lease.nil? || ours?(lease) || forgotten?(lease)

      "#{lease['spec']['holderIdentity']} since #{lease['spec']['acquireTime']}"
    end

    # Whether it is ours now.
    def take
      lease = read
      return create if lease.nil?
      return false unless ours?(lease) || forgotten?(lease)

      @cluster.try('replace', '--filename', '-', input: JSON.generate(fresh(lease))).first
    end

    def give_back
      lease = read
      return unless lease && ours?(lease)

      @cluster.kubectl('delete', 'lease', @name, '--namespace', @namespace)
    end

    private

    def read
      @cluster.get('lease', @name, '--namespace', @namespace)
    end

    def create
      @cluster.try('create', '--filename', '-', input: JSON.generate(fresh(nil))).first
    end

    def ours?(lease)
      lease['spec']['holderIdentity'] == @holder
    end

    # A node that died while it had its turn does not stop the others for good.
    def forgotten?(lease)
      spec = lease['spec']
      Time.now > Time.parse(spec['renewTime']) + spec['leaseDurationSeconds']
    end

    def fresh(lease)
      now = Time.now.utc.strftime(TIME)
      version = { 'resourceVersion' => lease && lease['metadata']['resourceVersion'] }.compact
      {
        'apiVersion' => 'coordination.k8s.io/v1',
        'kind' => 'Lease',
        'metadata' => { 'name' => @name, 'namespace' => @namespace }.merge(version),
        'spec' => {
          'holderIdentity' => @holder,
          'leaseDurationSeconds' => @duration,
          'acquireTime' => now,
          'renewTime' => now,
        },
      }
    end
  end
end
