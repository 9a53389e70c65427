# frozen_string_literal: true

provides :kubernetes_secret
unified_mode true

description 'A file with what a machine in the cloud needs to join, fetched with its instance role. A machine that ' \
  'finds none tries again until it has joined: by a timer, which does what the first boot does.'

property :file, String,
  name_property: true,
  description: 'The file, mode 0600'

property :parameter, String,
  description: 'The SecureString in SSM Parameter Store, `/causeway/research/node/kubernetes-join`'

property :region, String,
  description: 'The AWS region of the store'

property :wait, Integer,
  default: 120,
  description: 'Seconds to wait for it in this run'

action :fetch, description: 'Fetch it; a missing secret is not a failure.' do
  # The program ends so when there is nothing to fetch, or the store is away (EX_TEMPFAIL of sysexits.h).
  execute "fetch #{new_resource.file}" do
    command [
      '/usr/local/sbin/causeway-join-fetch', '--wait', new_resource.wait.to_s, '--region', new_resource.region,
      new_resource.parameter, new_resource.file,
    ]
    returns [0, 75]
  end

  systemd_unit 'causeway-join.service' do
    content(
      Unit: {
        Description: 'Another attempt to join the cluster',
        ConditionPathExists: "!#{Causeway::Kubeadm::CLIENT_CERTIFICATE}",
        After: 'network-online.target',
        Wants: 'network-online.target',
      },
      Service: { Type: 'oneshot', ExecStart: '/usr/local/lib/causeway/boot' }
    )
    action :create
  end

  systemd_unit 'causeway-join.timer' do
    content(
      Unit: { Description: 'Another attempt to join the cluster' },
      Timer: { OnActiveSec: '5min', OnUnitInactiveSec: '5min', RandomizedDelaySec: '1min' },
      Install: { WantedBy: 'timers.target' }
    )
    action %i(create enable start)
  end
end

action :forget, description: 'Take it away, and the timer with it: the machine is a node.' do
  file new_resource.file do
    backup false
    action :delete
  end

  systemd_unit 'causeway-join.timer' do
    action %i(stop disable delete)
    only_if { ::File.exist?('/etc/systemd/system/causeway-join.timer') }
  end
end
