# frozen_string_literal: true

# The driver's branch: 470, 535, 580 … Roles, nodes and images set it; without one the recipes stop.
default['gpu']['driver'] = nil

# The exact driver, `580.95.05`. nil: the newest of its branch when it is first installed, and that one until
# somebody asks for another.
default['gpu']['driver_version'] = nil

# Where the driver comes from: `distribution` (Ubuntu's restricted, Debian's non-free, signed and tested with
# its kernels), or `nvidia`, the CUDA repository below, which has branches sooner.
default['gpu']['source'] = 'distribution'

# How its modules come: `dkms` builds them here for every kernel, `signed` takes those that Ubuntu built and
# signed for its own, which Secure Boot asks for. A kernel's update then waits for Ubuntu's modules.
default['gpu']['modules'] = 'dkms'

# Packages of the driver, where neither of the two has them by the names that are known here. nil: by branch.
default['gpu']['packages'] = nil

# NVIDIA's open kernel modules: needed from Blackwell on, possible from Turing on.
default['gpu']['open_kernel_modules'] = false

# What NVSwitch needs to become one fabric: HGX and DGX machines, p4d and p5.
default['gpu']['fabric_manager'] = false

# The GPUs' architecture: kepler, maxwell, pascal, volta, turing, ampere, ada, hopper, blackwell. nil in an
# image for several.
default['gpu']['family'] = nil

# The GPUs' name in the catalogue, for people.
default['gpu']['model'] = nil

# How many there are; boards with two GPUs count as two. nil: as many as the bus has ever shown since the boot.
default['gpu']['count'] = nil

# The CUDA toolkit (nvcc and libraries to compile with), `12.8`. nil: none; containers and Python wheels bring
# what they need to run.
default['gpu']['cuda'] = nil

# NVIDIA's CUDA repository: the toolkit, DCGM, and the driver where `source` says so. nil `uri`: NVIDIA's own
# for this release. `uri` and `key_url` may name a mirror.
default['gpu']['repository'] = {
  'uri' => nil,
  'key_url' => nil,
  'key_checksum' => nil,
}

# What containers reach GPUs with. Its version is the pin in `node['software']['nvidia-container-toolkit']`.
# `devices`: how a container asks for GPUs: by its `environment`, which every image can do; or by `mounts`, which
# only the kubelet and privileged pods can make: for Kubernetes nodes, whose device plugin gives GPUs out.
default['gpu']['container_toolkit'] = {
  'enabled' => true,
  'devices' => 'environment',
  'uri' => 'https://nvidia.github.io/libnvidia-container/stable/deb',
  'key_url' => 'https://nvidia.github.io/libnvidia-container/gpgkey',
  'key_checksum' => 'c880576d6cf75a48e5027a871bac70fd0421ab07d2b55f30877b21f1c87959c9',
}

# DCGM and its Prometheus exporter, on the private address. The exporter's version is the pin in
# `node['software']['dcgm-exporter']`. `exporter` is false where Kubernetes runs one on each node: two would ask
# the same counters.
default['gpu']['dcgm'] = { 'enabled' => true, 'port' => 9400, 'exporter' => true }

# The size of the instances that each GPU is split into (Multi-Instance GPU), `1g.10gb`. nil: what the node's
# label `nvidia.com/mig.config` says, `all-1g.10gb`; without either, GPUs are left as they are.
default['gpu']['mig'] = nil

# The driver stays loaded while no GPU is in use: the first program need not wait for it, and settings persist.
default['gpu']['persistence'] = true

# The health check. A passing fault (heat, power brake, an nvidia-smi that hangs) counts after `bad_after`
# checks in a row, a lasting one at once; after `good_after` checks without any, the machine is well again, and
# after twice as many each time it falls ill within a day. `cordon`: take the Kubernetes node out of scheduling
# meanwhile. `taint`: tell Node Feature Discovery instead, which taints the node.
default['gpu']['health'] = {
  'enabled' => true,
  'every' => '1min',
  'cordon' => true,
  'taint' => false,
  'bad_after' => 3,
  'good_after' => 5,
  'timeout' => 60,
  'uncorrectable' => 0,
}

# Xids after which a GPU needs a reset, a reboot or a technician, as NVIDIA's Xid catalogue has them
# (https://docs.nvidia.com/deploy/xid-errors/). Not among them: what a faulty program causes (13, 31, 43, 45,
# 68, 69, 109), and what only announces a row that waits for its remapping (63), which the GPU itself reports.
#   46 stopped processing · 48 double-bit error · 62 internal halt · 64 page or row could not be retired
#   74 NVLink · 79 off the bus · 95 uncontained memory error · 110 security fault · 119, 120 GSP does not answer
#   136 NVLink training · 140 unrecovered ECC · 143 GPU initialization · 158 fatal GPU error
default['gpu']['fatal_xids'] = [46, 48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 158]
