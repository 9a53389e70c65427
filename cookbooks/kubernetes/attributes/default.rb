# frozen_string_literal: true

# The minor, `1.36`. kubeadm goes up one minor at a time.
default['kubernetes']['version'] = '1.36'

# Versions of the packages that may be installed, as apt_preferences(5) has it: `1.36.*`, or `1.36.2-*`.
# nil: all of the minor.
default['kubernetes']['package_version'] = nil

# The repository of the minor version; `%<minor>s` is the minor. It may be a mirror. Without `key_url`, the key is at
# `key_path` already. The project renews its keys now and then, so the key has no checksum.
default['kubernetes']['repository'] = {
  'uri' => 'https://pkgs.k8s.io/core:/stable:/v%<minor>s/deb/',
  'suites' => '/',
  'components' => nil,
  'key_url' => 'https://pkgs.k8s.io/core:/stable:/v%<minor>s/deb/Release.key',
  'key_path' => '/etc/apt/keyrings/kubernetes.asc',
}

# Where the API is: `api.research.internal:6443`. nil: `node['causeway']['api']`.
default['kubernetes']['endpoint'] = nil

# The DNS domain of services and pods.
default['kubernetes']['cluster_domain'] = 'cluster.local'

# Pods a node may have. The kubelet's memory and the node's pod range grow with it.
default['kubernetes']['pods_per_node'] = 110

# Whether the API server keeps an audit log.
default['kubernetes']['audit'] = true

# What pods may reach of machines: `machines` are the networks that machines are in, where pods reach names (port 53),
# the API, port 443 in `endpoints`, and what is `allowed`: {'block', 'protocol', 'ports'}. Ports that are `refused` they
# reach nowhere. `overlay` is the interface by which other machines' pods come; nil where they come as they are.
default['kubernetes']['egress'] = {
  'overlay' => 'flannel.1',
  'refused' => { 'tcp' => [2049], 'udp' => [2049, 8472] },
  'machines' => [],
  'endpoints' => [],
  'allowed' => [],
}

# The node's name in the cluster. nil: `node['causeway']['name']`, or the host's.
default['kubernetes']['node_name'] = nil

# The node's labels, which are kept so, and the taints it registers with: `key=value:Effect`, or {'key', 'value',
# 'effect'}. No node may change its taints later.
default['kubernetes']['labels'] = {}
default['kubernetes']['taints'] = []

# The address by which others reach the kubelet. nil: that of the default route.
default['kubernetes']['node_ip'] = nil

# What is kept from pods: {'cpu' => '100m', 'memory' => '512Mi', …} for the system (SSH, Chef, caches of file
# systems) and for kubelet and containerd. Worked out from the machine's size where it is not given.
default['kubernetes']['reserved'] = { 'system' => {}, 'kube' => {} }

# The kubelet evicts pods when less than this is left. A signal that is not named is not watched: once one is
# given, the kubelet has no defaults for the others.
default['kubernetes']['eviction'] = {
  'memory.available' => '500Mi',
  'nodefs.available' => '10%',
  'nodefs.inodesFree' => '5%',
  'imagefs.available' => '10%',
  'imagefs.inodesFree' => '5%',
}

# Images are removed from `high` percent of the disk down to `low`, and when they were not used for
# `maximum_age`.
default['kubernetes']['image_gc'] = { 'high' => 80, 'low' => 65, 'maximum_age' => '336h' }

# Seconds that pods have when the machine shuts down, and the last of them that critical pods (storage,
# network) have for themselves. A spot instance gets a notice two minutes ahead.
default['kubernetes']['shutdown'] = { 'grace' => 90, 'critical' => 20 }

# Machines with Elastic Fabric Adapters: huge pages of 2 MiB that are set aside for libfabric.
default['kubernetes']['efa'] = { 'huge_pages' => 5128 }

# Further fields of KubeletConfiguration (kubelet.config.k8s.io/v1beta1), and flags without dashes.
default['kubernetes']['kubelet'] = {}
default['kubernetes']['kubelet_arguments'] = {}

# The file with what a node needs to join: `token`, and `ca` or `ca_cert_hashes`. `parameter` is where a worker in the
# cloud that lacks it looks for it by its instance role (a SecureString of SSM Parameter Store in `region`, or in its
# own where that is one of `copies`), for at most `wait` seconds a run; nil: somebody else brings the file. `regions`
# are the AWS regions of such workers, in which masters look for them before they approve their certificates.
default['kubernetes']['join'] = {
  'file' => '/etc/causeway/secrets/kubernetes-join.yaml',
  'parameter' => nil,
  'region' => nil,
  'copies' => [],
  'regions' => [],
  'wait' => 120,
}

# Masters. `first` is the name of the one that begins the cluster, where there is none. `pki` (a folder like
# /etc/kubernetes/pki, perhaps with the authority alone) and `encryption` (an EncryptionConfiguration) are
# used where they are there. `cluster`, `init` and `proxy` go over ClusterConfiguration, InitConfiguration and
# KubeProxyConfiguration; `config` names a whole kubeadm configuration that is used instead. A bake pulls the images
# if `pull_images` says so.
#
# `names` are the masters, name => full name. `tokens` says whether this master puts fresh tokens where
# `join.parameter` is. `snapshots` of etcd go to a bucket, each `interval` seconds; `audit_copies` are what is new in
# the audit log. `certificates`: they are renewed
# when one has fewer `days` left.
default['kubernetes']['control_plane'] = {
  'first' => 'master-1',
  'pki' => '/etc/causeway/secrets/kubernetes-pki',
  'encryption' => '/etc/causeway/secrets/kubernetes-encryption.yaml',
  'cert_sans' => [],
  'cluster' => {},
  'init' => {},
  'proxy' => {},
  'config' => nil,
  'names' => {},
  'tokens' => false,
  'snapshots' => { 'bucket' => nil, 'prefix' => 'snapshots/', 'region' => nil, 'interval' => 3600 },
  'audit_copies' => { 'bucket' => nil, 'prefix' => 'audit/', 'region' => nil, 'interval' => 300 },
  'certificates' => { 'days' => 60, 'lease' => 'causeway-certificates', 'namespace' => 'kube-system' },
  'pull_images' => true,
  'authentication' => nil,
  'audit_log' => { 'days' => 30, 'files' => 10, 'mib' => 100 },
}

# Upgrades. `kubeconfig` may drain nodes and hold the lease; nil: admin.conf on a master, the file
# /etc/causeway/secrets/kubernetes-upgrade.conf elsewhere. Times are seconds: how long pods have to leave, how
# long to wait for one's turn, for the node to be ready, and when a lease counts as forgotten.
default['kubernetes']['upgrade'] = {
  'kubeconfig' => nil,
  'lease' => 'causeway-upgrade',
  'namespace' => 'kube-system',
  'drain_timeout' => 900,
  'turn_timeout' => 3600,
  'ready_timeout' => 300,
  'lease_duration' => 7200,
}
