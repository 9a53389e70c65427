# frozen_string_literal: true

#
# Cookbook:: kubernetes
# Recipe:: upkeep
#
# What a master does by itself: copies of etcd and of the audit log to buckets, fresh tokens for machines that join,
# the approval of kubelets' certificates, and new certificates of its own before the old ones end. Restoring a copy is
# for people: causeway-etcd-restore.

settings = node['kubernetes']
plane = settings['control_plane']
snapshots = plane['snapshots']
audit = settings['audit'] ? plane['audit_copies'] : {}
tokens = plane['tokens'] && !settings['join']['parameter'].nil?

directory '/etc/causeway' do
  mode '0755'
end

# No secret is in it.
file '/etc/causeway/control-plane.json' do
  content JSON.pretty_generate(
    'cluster' => node['causeway']['cluster'],
    'name' => settings['node_name'] || node.read('causeway', 'name') || node['hostname'],
    'endpoint' => settings['endpoint'] || node['causeway']['api'],
    'masters' => plane['names'].to_h,
    'snapshots' => snapshots.to_h.slice('bucket', 'prefix', 'region'),
    'audit' => audit.to_h.slice('bucket', 'prefix', 'region'),
    'join' => settings['join'].to_h.slice('region', 'copies', 'regions').merge(
      'parameter' => tokens ? settings['join']['parameter'] : nil
    ),
    'certificates' => plane['certificates'].to_h
  ) + "\n"
  mode '0644'
end

%w(
  causeway-audit-ship causeway-etcd-snapshot causeway-etcd-restore causeway-join-token causeway-join-approve
  causeway-certificates
).each do |program|
  cookbook_file "/usr/local/sbin/#{program}" do
    source program
    mode '0755'
  end
end

# Which units there are, when they run, and whether they are wanted here.
{
  'causeway-etcd-snapshot' => ['A copy of etcd', "#{snapshots['interval']}s", !snapshots['bucket'].nil?],
  'causeway-audit-ship' => ['The audit log, put into its bucket', "#{audit['interval']}s", !audit['bucket'].nil?],
  'causeway-join-token' => ['A fresh token for machines that join', '1h', tokens],
  'causeway-certificates' => ['New certificates before the old ones end', '1d', true],
}.each do |unit, (description, interval, wanted)|
  systemd_unit "#{unit}.service" do
    content(
      Unit: {
        Description: description,
        ConditionPathExists: '/etc/kubernetes/admin.conf',
        After: 'network-online.target',
        Wants: 'network-online.target',
      },
      Service: {
        Type: 'oneshot',
        ExecStart: "/usr/local/sbin/#{unit}",
        Nice: '10',
        TimeoutStartSec: '30min',
        PrivateTmp: 'yes',
        ProtectHome: 'read-only',
      }
    )
    action wanted ? :create : :delete
  end

  systemd_unit "#{unit}.timer" do
    content(
      Unit: { Description: description },
      # Masters of one age would all do it in the same second.
      Timer: { OnBootSec: '5min', OnUnitActiveSec: interval, RandomizedDelaySec: '2min' },
      Install: { WantedBy: 'timers.target' }
    )
    action wanted ? %i(create enable start) : %i(stop disable delete)
    only_if { wanted || ::File.exist?("/etc/systemd/system/#{unit}.timer") }
  end
end

# A kubelet waits for its certificate, so this one runs all the time.
systemd_unit 'causeway-join-approve.service' do
  content(
    Unit: {
      Description: 'Certificates for kubelets',
      ConditionPathExists: '/etc/kubernetes/admin.conf',
      After: 'network-online.target',
      Wants: 'network-online.target',
    },
    Service: {
      ExecStart: '/usr/local/sbin/causeway-join-approve',
      Restart: 'always',
      RestartSec: '10s',
      PrivateTmp: 'yes',
      ProtectHome: 'read-only',
    },
    Install: { WantedBy: 'multi-user.target' }
  )
  action %i(create enable start)
  subscribes :restart, 'file[/etc/causeway/control-plane.json]', :delayed
  subscribes :restart, 'remote_directory[/usr/local/lib/causeway/kubernetes_node]', :delayed
end
