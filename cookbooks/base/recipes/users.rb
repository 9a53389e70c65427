# frozen_string_literal: true

#
# Cookbook:: base
# Recipe:: users
#
# Who has an account, and who may do everything.
#

people = Causeway::People.items(self, node['base']['users_data_bag'])
groups = Causeway::People.items(self, node['base']['groups_data_bag'])

package 'sudo'

people.each do |person|
  base_user person['id'] do
    uid person['uid']
    comment person['name'] || ''
    home "#{node['base']['homes']}/#{person['id']}"
    manage_home !Causeway::Place.homes_elsewhere?(node)
    shell person['shell'] || '/bin/bash'
    ssh_keys person['ssh_keys'].to_a
    expires person['expires'] if person['expires']
    action Causeway::People.active?(person) ? :create : :remove
  end
end

Causeway::People.forgotten(people).each do |login|
  base_user login do
    action :remove
  end
end

groups.each do |each|
  group each['id'] do
    gid each['gid']
    members Causeway::People.members(each, people)
    append false
    action each['action'] == 'remove' ? :remove : :create
  end
end

# People have no passwords, so sudo asks for none.
template '/etc/sudoers.d/causeway' do
  source 'sudoers.erb'
  mode '0440'
  variables(groups: Causeway::People.administrators(groups, node['base']['sudo_groups']))
  verify 'test ! -x /usr/sbin/visudo || /usr/sbin/visudo --check --file=%{path}'
end
