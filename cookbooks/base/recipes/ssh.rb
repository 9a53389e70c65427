# frozen_string_literal: true

#
# Cookbook:: base
# Recipe:: ssh
#
# sshd, by a file that is read before the distribution's and cloud-init's own.
#

groups = Causeway::People.items(self, node['base']['groups_data_bag'])
administrators = Causeway::People.administrators(groups, node['base']['sudo_groups'])

package 'openssh-server'

directory '/etc/ssh/sshd_config.d'

# The keys of the user who runs this are in a home that a mount is about to hide: they would lock themselves out.
# From then on the copy is what counts.
account = Causeway::People.from_afar
if account && Causeway::Place.homes_elsewhere?(node)
  directory Causeway::People::OWN_KEYS do
    mode '0755'
  end

  remote_file "#{Causeway::People::OWN_KEYS}/#{account}" do
    source "file://#{Causeway::People.own_keys(account)}"
    owner account
    mode '0600'
    sensitive true
    action :create_if_missing
    not_if { ::File.exist?("#{Causeway::People::OWN_KEYS}/#{account}") }
    only_if { ::File.file?(Causeway::People.own_keys(account)) }
  end
end

# Groups and their members are known once `base::users` is through.
template '/etc/ssh/sshd_config.d/10-causeway.conf' do
  source 'sshd.conf.erb'
  mode '0644'
  variables(
    lazy do
      allowed = Causeway::People.login_groups(
        node['base']['login_groups'], administrators, node['base']['ssh']['always_groups']
      )
      if (account = Causeway::People.locked_out(allowed))
        raise "#{account}, who runs this, would be locked out, as sshd would let in #{allowed.join(', ')}; " \
              'name one of its groups in base.ssh.always_groups'
      end
      { groups: allowed }
    end
  )
  # Where systemd waits for the first connection, nothing has made that folder yet.
  verify 'test ! -x /usr/sbin/sshd || { mkdir -p /run/sshd && /usr/sbin/sshd -t -f %{path}; }'
  notifies :reload, 'service[ssh]', :delayed
end

service 'ssh' do
  supports reload: true
  action :nothing
end
