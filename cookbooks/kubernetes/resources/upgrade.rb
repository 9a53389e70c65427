# frozen_string_literal: true

provides :kubernetes_upgrade
unified_mode true

description 'A node at the version that is pinned, in the order of the kubeadm documentation, and only one ' \
  'node at a time: the holder of the lease. An interrupted run continues where it stopped.'

property :node_name, String,
  name_property: true,
  description: "The node's name"

property :kubeconfig, String,
  required: true,
  description: 'Credentials that may drain nodes and hold the lease'

property :lease, String,
  default: 'causeway-upgrade',
  description: "The lease's name"

property :namespace, String,
  default: 'kube-system',
  description: "The lease's namespace"

property :lease_duration, Integer,
  default: 7200,
  description: 'Seconds after which a lease counts as forgotten'

property :turn_timeout, Integer,
  default: 3600,
  description: "Seconds to wait for one's turn"

property :drain_timeout, Integer,
  default: 900,
  description: 'Seconds that pods have to leave'

property :ready_timeout, Integer,
  default: 300,
  description: 'Seconds that the node has to be ready again'

property :state, String,
  default: '/var/lib/causeway/kubernetes-upgrade',
  description: 'What is remembered of an upgrade under way: whether the node was cordoned before it'

action :upgrade, description: 'Upgrade the node, if it is not at the version that is pinned.' do
  return if current? && !under_way?

  check_credentials
  check_order
  wait_for_turn

  directory ::File.dirname(new_resource.state) do
    mode '0755'
    recursive true
  end
  unless under_way?
    file new_resource.state do
      content cluster.cordoned?(new_resource.node_name) ? "cordoned\n" : "schedulable\n"
      backup false
    end
  end

  kubernetes_package 'kubeadm' do
    action :upgrade
  end

  # Before the node is drained: it restarts nothing but a master's own pods.
  execute 'kubeadm upgrade' do
    command kubeadm_upgrade
    timeout 1800
  end

  execute "drain #{new_resource.node_name}" do
    command kubectl(
      'drain', new_resource.node_name, '--ignore-daemonsets', '--delete-emptydir-data',
      "--timeout=#{new_resource.drain_timeout}s"
    )
    timeout new_resource.drain_timeout + 60
  end

  %w(kubelet kubectl).each do |name|
    kubernetes_package name do
      action :upgrade
    end
  end

  # The package may have brought another unit; systemd reads it first.
  execute 'systemctl daemon-reload for the new kubelet' do
    command %w(systemctl daemon-reload)
  end

  service 'kubelet' do
    action :restart
  end

  # The old kubelet's Ready condition stays for most of a minute: wait for the new kubelet's status.
  wait_for("{.status.nodeInfo.kubeletVersion}=#{kubelet_version}", 'the new kubelet reports', 'jsonpath=')
  wait_for('Ready', 'it is ready', 'condition=')

  execute "uncordon #{new_resource.node_name}" do
    command kubectl('uncordon', new_resource.node_name)
    not_if { ::File.read(new_resource.state).strip == 'cordoned' }
  end

  converge_by("give the turn to the next node (lease #{new_resource.lease})") { turn.give_back }

  file new_resource.state do
    backup false
    action :delete
  end
end

action_class do
  def current?
    %w(kubeadm kubelet kubectl).none? { |name| Causeway::Packages.outdated?(name) }
  end

  def under_way?
    ::File.exist?(new_resource.state)
  end

  def master?
    ::File.exist?('/etc/kubernetes/manifests/kube-apiserver.yaml')
  end

  def cluster
    @cluster ||= Causeway::Cluster.new(new_resource.kubeconfig)
  end

  def turn
    @turn ||= Causeway::Turn.new(
      cluster, new_resource.namespace, new_resource.lease, new_resource.node_name, new_resource.lease_duration
    )
  end

  def kubectl(*arguments)
    ['kubectl', '--kubeconfig', new_resource.kubeconfig, *arguments]
  end

  def check_credentials
    return if ::File.exist?(new_resource.kubeconfig)

    raise "#{new_resource.kubeconfig} is not here: a node may not drain itself with its own credentials"
  end

  # A kubelet is never newer than any API server, minors are not skipped, and a downgrade is not possible.
  def check_order
    wanted = Causeway::Packages.candidate('kubelet')
    raise 'APT has no kubelet of the version that is pinned: see `apt-cache policy kubelet`' unless wanted

    there = cluster.version
    raise 'The cluster has no ConfigMap kube-system/kubeadm-config' unless there

    if number(wanted) < number(Causeway::Packages.installed('kubelet'))
      raise "#{new_resource.node_name} has a newer kubelet than #{wanted}: kubeadm knows no way back"
    end

    step = minor(wanted) - minor(there)
    raise "The cluster is at #{there}, #{wanted} is wanted: kubeadm goes up a minor at a time" if step > 1
    return if master?

    behind = cluster.masters.select { |_, version| minor(version) < minor(wanted) }
    behind = { 'the cluster' => there } if behind.empty? && step.positive?
    return if behind.empty?

    raise "Masters go first: #{behind.map { |each| each.join(' is at ') }.join(', ')}, #{wanted} is wanted"
  end

  # '1.36.2-1.1' → 1.36.2
  def number(version)
    Gem::Version.new(version[/\A\d+(\.\d+)*/])
  end

  # As the node reports it: '1.36.2-1.1' → 'v1.36.2'
  def kubelet_version
    "v#{number(Causeway::Packages.installed('kubelet'))}"
  end

  def wait_for(what, words, kind)
    execute "wait until #{words}" do
      command kubectl(
        'wait', "--for=#{kind}#{what}", "node/#{new_resource.node_name}", "--timeout=#{new_resource.ready_timeout}s"
      )
      timeout new_resource.ready_timeout + 60
    end
  end

  # '1.36.2-1.1', 'v1.36.2' → 36
  def minor(version)
    Integer(version[/\Av?1\.(\d+)/, 1])
  end

  def wait_for_turn
    converge_by("take the turn to upgrade (lease #{new_resource.lease})") do
      last = now + new_resource.turn_timeout
      until turn.take
        if now > last
          raise "It is the turn of #{turn.taken_by}: see that node, or delete the lease " \
            "#{new_resource.lease} in #{new_resource.namespace}"
        end
        sleep 10
      end
    end
  end

  def now
    ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
  end

  # The first master brings the cluster up, the others and workers follow.
  def kubeadm_upgrade
    version = shell_out!('kubeadm', 'version', '--output', 'short').stdout.strip
    ours, clusters = [version, cluster.version].map { |each| Gem::Version.new(each.delete_prefix('v')) }
    return %w(kubeadm upgrade node) unless master? && ours > clusters

    # CoreDNS is not kubeadm's here, but its preflight checks read the one that is there, and refuse versions that they
    # do not know.
    checks = %w(CoreDNSUnsupportedPlugins CoreDNSMigration)
    ['kubeadm', 'upgrade', 'apply', version, '--yes', "--ignore-preflight-errors=#{checks.join(',')}"]
  end
end
