# frozen_string_literal: true

provides :base_user
unified_mode true

description 'The account of a person: no password, SSH keys outside of the home, a group of its own.'

property :login, String,
  name_property: true,
  description: "The account's name"

property :uid, Integer,
  required: [:create],
  description: 'Its number, and that of its own group: the same on all machines, as files are shared'

property :comment, String,
  default: '',
  description: 'Who it is'

property :home, String,
  default: lazy { "/home/#{login}" },
  default_description: '/home/LOGIN',
  description: 'Their home'

property :manage_home, [true, false],
  default: true,
  description: 'Whether the home is made with the account'

property :shell, String,
  default: '/bin/bash',
  description: 'Their login shell'

property :ssh_keys, Array,
  default: [],
  description: 'Public keys that open it, each a line of authorized_keys(5)'

property :expires, String,
  description: 'The last day on which it can be used, as ISO 8601 has it'

action :create, description: 'Make the account, or make it what it should be.' do
  group new_resource.login do
    gid new_resource.uid
  end

  # Private until its owner changes the mode.
  fresh = new_resource.manage_home && !::File.exist?(new_resource.home)

  user new_resource.login do
    uid new_resource.uid
    gid new_resource.uid
    comment new_resource.comment
    home new_resource.home
    manage_home new_resource.manage_home
    shell new_resource.shell
    expire_date Causeway::People.shut_from(new_resource.expires) if new_resource.expires
  end

  directory new_resource.home do
    owner new_resource.login
    group new_resource.login
    mode '0700'
    only_if { fresh }
  end

  # `user` can set such a date, but not take it away.
  execute "no last day for #{new_resource.login}" do
    command ['chage', '--expiredate', '-1', new_resource.login]
    only_if { new_resource.expires.nil? && Causeway::People.expiry?(new_resource.login) }
  end

  directory Causeway::People::KEYS do
    mode '0755'
  end

  file keys do
    content "#{['# Written by Chef: changes here are lost.', *new_resource.ssh_keys].join("\n")}\n"
    owner new_resource.login
    group new_resource.login
    mode '0600'
    backup false
  end
end

action :remove, description: 'Lock the account and end its sessions; home and number stay.' do
  user new_resource.login do
    shell '/usr/sbin/nologin'
    expire_date '1970-01-02' # a locked password alone does not keep a key out
    action :manage
    notifies :run, "execute[end the sessions of #{new_resource.login}]", :delayed
  end

  user "#{new_resource.login}'s password" do
    username new_resource.login
    action :lock
    only_if { account? }
  end

  file keys do
    backup false
    action :delete
  end

  execute "end the sessions of #{new_resource.login}" do
    command ['loginctl', 'terminate-user', new_resource.login]
    returns [0, 1] # 1: there were none
    only_if { systemd? && account? }
    action :nothing
  end
end

action_class do
  def keys
    "#{Causeway::People::KEYS}/#{new_resource.login}"
  end

  def account?
    !::Etc.getpwnam(new_resource.login).nil?
  rescue ArgumentError
    false
  end
end
