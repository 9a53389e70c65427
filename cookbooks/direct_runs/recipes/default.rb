# frozen_string_literal: true

#
# Cookbook:: direct_runs
# Recipe:: default
#
# What `causeway run --on` needs on a machine, so that users do not need root there. Accounts and keys are `base`, GPUs
# and how containers reach them are `gpu`.
#

settings = node['direct_runs']

package settings['packages'].to_a

# -- Each user's systemd keeps running after logout ----------------------------------------------------------

people = Causeway::People.items(self, node['base']['users_data_bag'])
groups = Causeway::People.items(self, node['base']['groups_data_bag'])
administrators = Causeway::People.administrators(groups, node['base']['sudo_groups'])
wanted = Causeway::People.login_groups(node['base']['login_groups'], administrators, [])
lingering = Causeway::People.who_log_in(wanted, groups, people)

lingering.each do |login|
  execute "loginctl enable-linger #{login}" do
    command ['loginctl', 'enable-linger', login]
    not_if { ::File.exist?("/var/lib/systemd/linger/#{login}") }
    only_if { systemd? }
  end
end

# Who left has had their sessions ended by `base`; logind would start them again at the next boot.
(people.map { |person| person['id'] } + Causeway::People.forgotten(people) - lingering).sort.each do |login|
  file "/var/lib/systemd/linger/#{login}" do
    backup false
    action :delete
  end
end

# -- uv: packages of `python:` -------------------------------------------------------------------------------

version = node.read('software', 'uv', 'version')
raise ArgumentError, 'software.uv.version: which uv to install is not said' unless version

build = "#{settings['uv']}/#{version}"

directory settings['uv'] do
  recursive true
end

# An interrupted build has no program: `--clear` starts it again.
execute "make a home for uv #{version}" do
  command ['python3', '-m', 'venv', '--clear', build]
  not_if { ::File.executable?("#{build}/bin/uv") }
end

execute "install uv #{version}" do
  command [
    "#{build}/bin/python", '-m', 'pip', 'install', '--quiet', '--no-deps', '--no-cache-dir', '--only-binary', ':all:',
    *(settings['index'] ? ['--index-url', settings['index']] : []), "uv==#{version}",
  ]
  umask '022'
  timeout 600
  not_if { ::File.executable?("#{build}/bin/uv") }
end

%w(uv uvx).each do |program|
  link "/usr/local/bin/#{program}" do
    to "#{build}/bin/#{program}"
  end
end

# -- What may come in ----------------------------------------------------------------------------------------

directory '/etc/causeway' do
  mode '0755'
end

template '/etc/causeway/machine.nft' do
  source 'machine.nft.erb'
  mode '0644'
  variables(inside: node['causeway']['private'].to_a)
  action settings['firewall'] ? :create : :delete
  notifies :reload, 'systemd_unit[causeway-firewall.service, now]', :delayed if settings['firewall']
end

systemd_unit 'causeway-firewall.service' do
  content(
    'Unit' => {
      'Description' => 'What may come in to this machine', 'Before' => 'network-pre.target shutdown.target',
      'Wants' => 'network-pre.target', 'DefaultDependencies' => 'no', 'Conflicts' => 'shutdown.target',
      'After' => 'local-fs.target',
      # A container has its host's kernel, whose rules are not ours.
      'ConditionVirtualization' => '!container',
    },
    'Service' => {
      'Type' => 'oneshot', 'RemainAfterExit' => 'yes',
      'ExecStart' => '/usr/sbin/nft --file /etc/causeway/machine.nft',
      'ExecReload' => '/usr/sbin/nft --file /etc/causeway/machine.nft',
      'ExecStop' => '/usr/sbin/nft delete table inet causeway-machine',
    },
    'Install' => { 'WantedBy' => 'sysinit.target' }
  )
  verify true
  action settings['firewall'] ? %i(create enable) : %i(stop disable delete)
end

systemd_unit 'causeway-firewall.service, now' do
  unit_name 'causeway-firewall.service'
  action settings['firewall'] ? :start : :nothing
  not_if 'systemd-detect-virt --container --quiet'
end
