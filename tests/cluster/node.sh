#!/bin/sh
# The first process of a machine: a root file system of its own over this machine's, and an SSH server.
# Environment: NAME, STATE (a folder), TOOLS and RELEASE (Kubernetes), AFTER (the release after it), KUBECTL, LAB
# (programs and files of the lab), ADDRESS, GATEWAY.
set -eu
# cgroups: a name space of their own below the group that this was started in.
mount --make-rprivate /
mount -t tmpfs -o mode=755,size=8g node "$STATE"
mkdir "$STATE/root" "$STATE/upper" "$STATE/work" "$STATE/data"
mount -t overlay node -o "lowerdir=/,upperdir=$STATE/upper,workdir=$STATE/work" "$STATE/root"
cd "$STATE/root"
mount --rbind /dev dev
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 cgroup sys/fs/cgroup
for each in cpu cpuacct cpuset memory pids devices freezer blkio; do
  mkdir "sys/fs/cgroup/$each"
  mount -t cgroup -o "$each" cgroup "sys/fs/cgroup/$each"
done
for each in run tmp; do mount -t tmpfs -o mode=1777 tmpfs "$each"; done
mount -t tmpfs -o mode=755 tmpfs run
# Whatever a developer's shell does when it starts is not for those that come over SSH.
mount -t tmpfs -o mode=700 tmpfs root
for each in kubelet containerd etcd cni causeway; do
  mkdir -p "$STATE/data/$each" "var/lib/$each"
  mount --bind "$STATE/data/$each" "var/lib/$each"
done
mkdir -p "$STATE/data/log"
mount --bind "$STATE/data/log" var/log
mkdir -p "usr/local/lib/kubernetes/$RELEASE" "usr/local/lib/kubernetes/$AFTER"
mount --bind "$TOOLS" "usr/local/lib/kubernetes/$RELEASE"
mount --bind "$LAB/after" "usr/local/lib/kubernetes/$AFTER"
for each in ctr containerd containerd-shim-runc-v2; do
  ln -sf "/usr/local/lib/kubernetes/$RELEASE/$each" "usr/local/bin/$each"
done
mkdir -p srv/bucket usr/local/lib/causeway
mount --bind "$LAB/s3" srv/bucket
cp -r "$LAB"/standins/* usr/local/lib/causeway/
cp "$LAB"/programs/* usr/local/bin/
for each in systemctl crictl kubeadm; do mv "usr/local/bin/$each" "usr/bin/$each"; done
ln -sf /usr/local/bin/netpol usr/bin/netpol
cp "$KUBECTL" usr/bin/kubectl
cp "$LAB/hosts" etc/hosts
printf 'nameserver %s\n' "$GATEWAY" > etc/resolv.conf.new && mv -f etc/resolv.conf.new etc/resolv.conf
echo "$NAME" > etc/hostname
hostname "$NAME"
rm -rf etc/cni/net.d etc/kubernetes opt/cni
mkdir -p etc/cni/net.d opt/cni/bin etc/lab etc/kubernetes/kubelet.conf.d etc/causeway
cp usr/lib/cni/* opt/cni/bin/
cp "$LAB"/files/* etc/lab/
cp etc/lab/90-lab.conf etc/kubernetes/kubelet.conf.d/
mkdir -p usr/lib/systemd/system && cp etc/lab/kubelet.service usr/lib/systemd/system/
mkdir old
pivot_root . old
cd /
umount -l /old
# What a kubelet sets for the whole kernel it finds set.
set_already() { echo "$2" > "/run/sysctl-$3"; mount --bind "/run/sysctl-$3" "/proc/sys/$1"; }
set_already vm/overcommit_memory 1 a
set_already vm/panic_on_oom 0 b
set_already kernel/panic 10 c
set_already kernel/panic_on_oops 1 d
set_already kernel/keys/root_maxkeys 1000000 e
set_already kernel/keys/root_maxbytes 25000000 f
mount --make-rshared /
ip link set lo up
until ip link set eth0 up 2>/dev/null; do sleep 0.05; done
ip address add "$ADDRESS/32" dev eth0
ip route add "$GATEWAY/32" dev eth0
ip route add default via "$GATEWAY"
echo 1 > /proc/sys/net/ipv4/ip_forward
mkdir -p /run/sshd /run/lab /var/log/pods /var/log/containers
/usr/sbin/sshd -f /etc/lab/sshd_config -E /var/log/sshd.log
(
  ctr oci spec | python3 /etc/lab/spec.py > /run/lab/spec.json
  exec containerd -c /etc/lab/containerd.toml > /var/log/containerd.log 2>&1
) &
until ctr -a /run/containerd/containerd.sock version > /dev/null 2>&1; do sleep 0.2; done
ctr -a /run/containerd/containerd.sock -n k8s.io images import --local /etc/lab/images.tar > /var/log/images.log 2>&1
echo ready > /run/lab/ready
trap '' CHLD
exec sleep infinity
