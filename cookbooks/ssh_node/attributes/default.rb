# frozen_string_literal: true

# Debian packages for those who work here for longer than a connection lasts.
default['ssh_node']['packages'] = %w(acl byobu git git-lfs htop ncdu rsync screen tmux unzip zsh)

# Groups that may log in, besides users with sudo. Empty: those of `base.login_groups`.
default['ssh_node']['groups'] = []

# The same for machines in a region, which all have one image's attributes: host name => groups.
default['ssh_node']['access'] = {}

# What one person may take of the machine, as systemd.resource-control(5) has it; nil: no limit. Above
# `memory_high` their processes are slowed down, above `memory_max` one is ended. Processors are shared fairly
# while all are busy; `cpu_quota` (`400%`: four) is a limit also while they are not.
default['ssh_node']['limits']['memory_high'] = '80%'
default['ssh_node']['limits']['memory_max'] = '90%'
default['ssh_node']['limits']['cpu_quota'] = nil
default['ssh_node']['limits']['tasks_max'] = 16_384

# What one process may take, as limits.conf(5) has it. GPUs read memory that is locked.
default['ssh_node']['ulimits']['nofile'] = 1_048_576
default['ssh_node']['ulimits']['memlock'] = 'unlimited'
default['ssh_node']['ulimits']['core'] = 0

# Mode of a home that is made when somebody logs in for the first time, as the umask that leads to it.
default['ssh_node']['home_umask'] = '0077'

# Whose members may use the GPUs. Nil: everybody who may log in. Takes effect when the driver is loaded next.
default['ssh_node']['gpu_group'] = nil

# Lines that everybody reads after logging in, below ours.
default['ssh_node']['motd'] = []

own = node.read('ssh_node', 'groups').to_a
place = node.read('causeway', 'hostname') || node['hostname']
own = node.read('ssh_node', 'access', place).to_a if own.empty?

# Before recipes run, so that sshd reloads once.
override['base']['login_groups'] = own unless own.empty?
