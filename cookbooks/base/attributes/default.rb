# frozen_string_literal: true

# Debian packages beside those of the recipes, such as an image's own: `htop`, or `htop=3.3.0-4`.
default['base']['packages'] = []

# What the one who looks at a machine in trouble wants to find there.
default['base']['tools'] = %w(
  ca-certificates curl dnsutils ethtool htop iotop iproute2 jq less lsof mtr-tiny pciutils psmisc
  rsync smartmontools strace sysstat tcpdump tmux vim
)

# Clocks tell this time; everybody reads logs of several sites side by side.
default['base']['timezone'] = 'UTC'

# NTP servers, best ones first. None: the distribution's pool. On AWS, Amazon's own comes before them.
default['base']['time_servers'] = []

# The NTP server that every instance on AWS reaches without a network.
default['base']['aws_time_server'] = '169.254.169.123'

# Whose members may do everything by sudo, beside the groups whose data bag item says `sudo`.
default['base']['sudo_groups'] = []

# Whose members may come in by SSH. Empty: everybody with an account. Who may use sudo may always come in, and
# so may `base.ssh.always_groups`.
default['base']['login_groups'] = []

# Data bags of people and of their groups.
default['base']['users_data_bag'] = 'users'
default['base']['groups_data_bag'] = 'groups'

# Where homes are. A home is made with its account, but where `/home` is mounted from elsewhere.
default['base']['homes'] = '/home'

# sshd. `always_groups` keep their way in whatever `login_groups` says: root, and the accounts that images and
# installers make (`ubuntu`, `causeway`), by which machines are converged.
default['base']['ssh']['always_groups'] = %w(root sudo causeway)
default['base']['ssh']['x11_forwarding'] = false
default['base']['ssh']['max_auth_tries'] = 6

# Automatic security updates, each day. Nothing is rebooted: reboot after draining the node.
default['base']['unattended_upgrades'] = true

# What is never updated by itself, as regular expressions: a driver that no longer fits what is loaded takes a
# node's GPUs away, and the cluster's own parts are updated one node at a time.
default['base']['unattended_blacklist'] = %w(
  ^nvidia- ^libnvidia- ^cuda- ^datacenter-gpu-manager ^containerd ^docker ^kube ^cri-tools
)

# Services that are not restarted when a library of theirs was updated, as regular expressions: jobs and
# people's sessions hang on them. What listens to the Internet, as VPNs do, is restarted.
default['base']['needrestart_ignored'] = %w(
  ^containerd ^kubelet ^docker ^nvidia- ^systemd-logind ^user@ ^getty@ ^dbus
)

# The journal: how much it may take of the disk, and how long it is kept (systemd.time(7)).
default['base']['journald']['max_use'] = '1G'
default['base']['journald']['retention'] = '30day'

# Prometheus's node exporter, on port 9100 of the private address.
default['base']['node_exporter'] = true
default['base']['node_exporter_port'] = 9100

# Kernel parameters, in /etc/sysctl.d/60-causeway.conf.
#
# Each container and each editor on an SSH node watches files of its own.
default['base']['sysctl']['fs.inotify.max_user_instances'] = 8192
default['base']['sysctl']['fs.inotify.max_user_watches'] = 1_048_576
# Data loaders and databases map many small files.
default['base']['sysctl']['vm.max_map_count'] = 1_048_576
default['base']['sysctl']['fs.aio-max-nr'] = 1_048_576
# Prefer memory of jobs to the page cache of data that is not read again; swap is the last resort.
default['base']['sysctl']['vm.swappiness'] = 1
# Hundreds of pods begin at the same moment and connect to one service.
default['base']['sysctl']['net.core.somaxconn'] = 16_384
default['base']['sysctl']['net.ipv4.tcp_max_syn_backlog'] = 16_384
# One flat network: neighbours are all nodes of a site and all pods of a node.
default['base']['sysctl']['net.ipv4.neigh.default.gc_thresh1'] = 4096
default['base']['sysctl']['net.ipv4.neigh.default.gc_thresh2'] = 8192
default['base']['sysctl']['net.ipv4.neigh.default.gc_thresh3'] = 16_384
# Between continents a window is 10 Gbit/s × 150 ms; what is not needed is not taken.
default['base']['sysctl']['net.core.rmem_max'] = 67_108_864
default['base']['sysctl']['net.core.wmem_max'] = 67_108_864
default['base']['sysctl']['net.ipv4.tcp_rmem'] = '4096 131072 67108864'
default['base']['sysctl']['net.ipv4.tcp_wmem'] = '4096 65536 67108864'
# Tunnels are narrower than the network: where no message says so, TCP finds out by itself.
default['base']['sysctl']['net.ipv4.tcp_mtu_probing'] = 1
# A machine that panicked is of no use to anybody in a rack: it comes back by itself.
default['base']['sysctl']['kernel.panic'] = 10
default['base']['sysctl']['kernel.panic_on_oops'] = 1

# Lines of /etc/hosts beside the machine's own: address => names.
default['base']['hosts'] = {}
