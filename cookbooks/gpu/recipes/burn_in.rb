# frozen_string_literal: true

#
# Cookbook:: gpu
# Recipe:: burn_in
#
# What the burn-in of `causeway-gpu-health` needs beside DCGM: NCCL, whose builds for CUDA 12 have code for all
# GPUs from Maxwell to Blackwell. In no role: `invoke enroll --burn-in` adds it to a machine's run list.

cuda = [Causeway::Driver.cuda_major(node['gpu']['driver']), 12].min

# Ubuntu's multiverse has the package too; the version of NVIDIA's says what CUDA it is for. NVIDIA has none for
# Debian.
apt_preference 'libnccl2' do
  pin "version *+cuda#{cuda}.*"
  pin_priority '1001'
end

apt_package 'libnccl2' do
  options '--no-install-recommends'
  only_if { platform?('ubuntu') }
end
