# frozen_string_literal: true

provides :storage_copy
unified_mode true

description 'A folder that is copied into a bucket every night, by rclone.'

property :copy_name, String,
  name_property: true,
  regex: /\A[a-z0-9][a-z0-9-]*\z/,
  description: 'Its name'

property :source, String,
  description: 'The folder'

property :bucket, String,
  description: 'The bucket'

property :region, String,
  description: "The bucket's AWS region"

property :prefix, String,
  default: '',
  description: 'The folder in the bucket'

property :at, String,
  default: '02:00',
  description: 'When it begins, UTC'

property :mountpoint, String,
  description: 'The mount that the folder is on: while nothing is mounted there, nothing is copied'

property :credentials, String,
  description: "A file of the AWS CLI's form; none: the machine's own role"

property :options, Array,
  default: [],
  description: 'Further options of rclone'

action :create, description: 'Copy it from now on.' do
  systemd_unit "#{unit}.service" do
    content(service)
    verify true
    action :create
  end

  systemd_unit "#{unit}.timer" do
    content(
      'Unit' => { 'Description' => "Nightly copy #{new_resource.copy_name}" },
      'Timer' => {
        'OnCalendar' => "*-*-* #{new_resource.at}:00 UTC",
        'RandomizedDelaySec' => '5min',
        'Persistent' => 'true',
      },
      'Install' => { 'WantedBy' => 'timers.target' }
    )
    action %i(create enable start)
  end
end

action :remove, description: 'Copy it no longer. What was copied stays.' do
  systemd_unit "#{unit}.timer" do
    action %i(stop disable delete)
  end

  systemd_unit "#{unit}.service" do
    action :delete
  end
end

action_class do
  def unit
    "causeway-copy-#{new_resource.copy_name}"
  end

  # An empty folder would be copied too, and delete all copies: what it is on must be mounted.
  def service
    conditions = [new_resource.credentials].compact
    {
      'Unit' => {
        'Description' => "Copy of #{new_resource.source} to #{new_resource.bucket}",
        'Wants' => 'network-online.target',
        'After' => 'network-online.target',
        'ConditionPathExists' => conditions.empty? ? nil : conditions,
        'ConditionPathIsMountPoint' => new_resource.mountpoint,
      }.compact,
      'Service' => {
        'Type' => 'oneshot',
        'Environment' => environment,
        'ExecStart' => command.join(' '),
        'CapabilityBoundingSet' => 'CAP_DAC_READ_SEARCH',
        'ProtectSystem' => 'strict',
        'PrivateTmp' => 'true',
        'NoNewPrivileges' => 'true',
        'IOSchedulingClass' => 'idle',
        'Nice' => '10',
        'TimeoutStartSec' => '20h',
      },
    }
  end

  def environment
    values = {
      'RCLONE_CONFIG' => '/dev/null',
      'RCLONE_S3_PROVIDER' => 'AWS',
      'RCLONE_S3_ENV_AUTH' => 'true',
      'RCLONE_S3_REGION' => new_resource.region,
      'RCLONE_S3_NO_CHECK_BUCKET' => 'true',
    }
    values['AWS_SHARED_CREDENTIALS_FILE'] = new_resource.credentials if new_resource.credentials
    values.map { |name, value| "#{name}=#{value}" }
  end

  def command
    target = [new_resource.bucket, new_resource.prefix.chomp('/')].reject(&:empty?).join('/')
    ['/usr/bin/rclone', 'sync', new_resource.source, ":s3:#{target}", '--links', '--transfers=16', '--checkers=32',
     '--stats=5m', '--stats-log-level=NOTICE', *new_resource.options,]
  end
end
