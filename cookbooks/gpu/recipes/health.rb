# frozen_string_literal: true

#
# Cookbook:: gpu
# Recipe:: health
#
# A check each minute: it writes /var/lib/causeway/gpu-health.json, and keeps work away from an unhealthy machine.

gpu = node['gpu']
health = gpu['health']

package 'python3'

directory '/usr/local/lib/causeway' do
  recursive true
end

remote_directory '/usr/local/lib/causeway/gpu_health' do
  source 'gpu_health'
  mode '0755'
  files_mode '0644'
  purge true
end

cookbook_file '/usr/local/sbin/causeway-gpu-health' do
  source 'causeway-gpu-health'
  mode '0755'
end

directory '/etc/causeway'

# The unit may write nowhere else, and does not start without it.
directory '/var/lib/causeway'

features = Causeway::HealthSettings::FEATURES

directory ::File.dirname(features) do
  recursive true
  only_if { health['taint'] }
end

# What the check said last, if it no longer says so here.
file features do
  action :delete
  not_if { health['taint'] }
end

file '/etc/causeway/gpu-health.json' do
  content "#{JSON.pretty_generate(Causeway::HealthSettings.of(node))}\n"
  mode '0644'
end

systemd_unit 'causeway-gpu-health.service' do
  content(
    Unit: { Description: "Check of the machine's GPUs", Documentation: 'file:/usr/local/lib/causeway/gpu_health' },
    Service: {
      Type: 'oneshot',
      ExecStart: '/usr/local/sbin/causeway-gpu-health',
      # What hangs within the driver can't be ended; systemd would wait for it.
      KillMode: 'process',
      TimeoutStartSec: "#{(health['timeout'] * 4) + 240}s",
      Nice: -5,
      ProtectSystem: 'strict',
      ReadWritePaths: ['/var/lib/causeway', *(::File.dirname(features) if health['taint'])].join(' '),
      ProtectHome: true,
    }
  )
  action :create
end

systemd_unit 'causeway-gpu-health.timer' do
  content(
    Unit: { Description: "Check of the machine's GPUs" },
    Timer: { OnBootSec: '1min', OnUnitActiveSec: health['every'], AccuracySec: '5s', RandomizedDelaySec: '5s' },
    Install: { WantedBy: 'timers.target' }
  )
  action Causeway::Place.baking?(node) ? %i(create enable) : %i(create enable start)
end
