#!/bin/sh
# packages.sh [AREA…]: the system packages that an area of `make integration` needs, installed where that may be done: on a
# Debian or Ubuntu, as root or with a sudo that asks nothing. Elsewhere the tests that need them are skipped, and say so.
# AREA is a table of tests/integration.toml, or `test` for the tools with which `make test` reads what we render, where
# they are installed. Without an area: all of them.
# packages.sh --list [AREA…]: their names, a line each, and nothing is installed.
#
# What a role's machines have is read from its cookbook, so that tests run what machines run.
set -eu
cookbooks=$(dirname "$0")/../cookbooks

# role COOKBOOK: the list `default[COOKBOOK]['packages'] = %w(…)` of its attributes.
role() {
  file=$cookbooks/$1/attributes/default.rb
  names=$(tr '\n' ' ' <"$file" | sed -n "s/.*default\['$1'\]\['packages'\] = %w(\([^)]*\)).*/\1/p")
  # shellcheck disable=SC2086 # a list of words
  set -- $names
  if [ $# -eq 0 ]; then
    echo "tests/packages.sh: $file has no list of packages" >&2
    exit 1
  fi
  printf '%s\n' "$@"
}

# Packages, and the areas that need them; @NAME is what the cookbook NAME installs.
table() {
  sed 's/ *#.*//; /^$/d' <<END
# What reads our files: swanctl, FRR, nftables, OpenVPN, dnsmasq.
@network_site             test network
@network_access           test network
dnsutils                  test network
openssl                   test network
iproute2                  network machines client runs kubelet
openssh-client            test network machines chef images client runs kubernetes kubelet
openssh-server            test network machines chef images client runs kubernetes kubelet
util-linux                test network machines chef images client runs kubernetes kubelet
procps                    network machines client runs kubelet
ruby                      test network chef kubernetes kubelet
ruby-erubis               test network chef      # the Erubis that Chef renders with
rubocop                   test
shellcheck                test
sudo                      test machines
chrony                    test
systemd                   test network client runs
perl                      test
xfsprogs                  test
nfs-kernel-server         test network
nfs-common                test network
gnupg                     test chef images       # signatures of what images are made of
curl                      test client
packer                    test images machines
graphviz                  test terraform         # draws the picture of a cluster

# The network lab.
iputils-ping              network
iperf3                    network
socat                     network
tcpdump                   network
wireguard-go              network                # where this kernel has no WireGuard
easy-rsa                  test network
rsync                     test network machines client kubernetes
network-manager           network                # on a bus of its own: a laptop
network-manager-openvpn   network
dbus-daemon               test network
apparmor                  network                # its parser: servers under a profile, in the lab's VM
prometheus                test network kubernetes # promtool reads metrics, alerts and dashboards
prometheus-alertmanager   test kubernetes

# A VM, where this machine's kernel lacks ESP or XFRM interfaces. The cloud kernels have no 9p.
qemu-system-x86           network machines chef kubelet
qemu-utils                machines chef
busybox-static            network machines chef kubelet
kmod                      network machines chef kubelet
linux-image-amd64         network machines chef kubelet

# Machines behind instances of the embedded AWS, and images of our Dockerfiles.
debootstrap               machines chef images
e2fsprogs                 test machines chef images kubelet
buildah                   images

# Nodes of a cluster, with a real kubelet in the VM or on this kernel; a real API server's store.
containerd                test kubelet
runc                      kubelet
iptables                  kubelet
containernetworking-plugins kubelet
dnsmasq-base              kubelet
nftables                  kubelet
etcd-server               kubernetes autoscaler client kubelet
etcd-client               kubernetes autoscaler client kubelet
postgresql                kubernetes client      # MLflow's database; tests start their own
rclone                    test kubernetes

# What researchers run: processes that train together, containers without root, pages in a browser.
python3-torch             test client runs machines kubelet
podman                    runs
uidmap                    runs
libnss-wrapper            test client runs
chromium                  client terraform
chromium-driver           client terraform
END
}

# list [AREA…]
list() {
  for area in "${@:-}"; do
    table | awk -v area="$area" '{ for (i = 2; i <= NF; i++) if (area == "" || $i == area) { print $1; next } }'
  done | while read -r package; do
    case $package in
      @*) role "${package#@}" ;;
      *) echo "$package" ;;
    esac
  done
}

known() {
  for area in "$@"; do
    if ! table | cut -d' ' -f2- | grep -qw -- "$area"; then
      echo "tests/packages.sh: no package is listed for the area '$area'" >&2
      exit 1
    fi
  done
}

if [ "${1:-}" = --list ]; then
  shift
  known "$@"
  packages=$(list "$@")
  printf '%s\n' "$packages" | sort -u
  exit 0
fi
known "$@"
packages=$(list "$@")

if ! command -v apt-get >/dev/null; then
  echo "tests/packages.sh: apt-get not found, so tests that need a package which is not installed are skipped" >&2
  exit 0
fi

missing=""
for package in $packages; do
  case $package in
    # Any kernel with 9p will do.
    linux-image-*) if ls /lib/modules/*/kernel/fs/9p/9p.ko* >/dev/null 2>&1; then continue; fi ;;
  esac
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

sudo=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
    echo "tests/packages.sh: not root, so these are left out:$missing" >&2
    exit 0
  fi
  sudo="sudo -n"
fi

# Daemons are installed, not started: tests start their own. A policy that is there already is put back.
policy=/usr/sbin/policy-rc.d
put_back() {
  $sudo rm -f "$policy"
  if [ -e "$policy.before-tests" ]; then $sudo mv "$policy.before-tests" "$policy"; fi
}
if [ -e "$policy" ]; then $sudo mv "$policy" "$policy.before-tests"; fi
trap put_back EXIT
trap 'exit 1' HUP INT TERM
printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
$sudo chmod 755 "$policy"

$sudo apt-get update -qq
wanted="" unknown=""
for package in $missing; do
  if apt-cache show "$package" >/dev/null 2>&1; then wanted="$wanted $package"; else unknown="$unknown $package"; fi
done
[ -z "$unknown" ] || echo "tests/packages.sh: this distribution lacks$unknown" >&2
[ -n "$wanted" ] || exit 0
# INITRD=No: the lab brings its own; the kernel is never booted by this machine.
# shellcheck disable=SC2086 # a list of words
$sudo env DEBIAN_FRONTEND=noninteractive INITRD=No \
  apt-get install -qq -y --no-install-recommends $wanted >/dev/null

# It would take this machine's interfaces at the next boot.
case " $wanted " in
  *" network-manager "*) $sudo systemctl --quiet disable NetworkManager.service NetworkManager-wait-online.service || true ;;
esac
