# networkd.sh DROP_IN: what is left of routes and rules that are not systemd-networkd's after `netplan apply`.
#
# The real daemon and its bus, in namespaces of their own: unshare --net --mount --pid --fork --mount-proc. Prints the
# routes and rules that there are after `networkctl reload` and `networkctl reconfigure`.
set -eu
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp /run/systemd/network /run/dbus \
    /run/systemd/networkd.conf.d
# It gives its root up for a user that has none; there is nobody to ask for rights here, so that one is root.
sed 's/^systemd-network:x:[0-9]*:[0-9]*/systemd-network:x:0:0/' /etc/passwd >/run/passwd
mount --bind /run/passwd /etc/passwd
# Without udev: it would wait for a device that can be written to, to be set up.
mount -t sysfs sysfs /sys -o ro
[ -z "$1" ] || cp "$1" /run/systemd/networkd.conf.d/10-ours.conf
lan=/run/systemd/network/10-lan.network
printf '[Match]\nName=lan0\n[Network]\nAddress=10.200.0.2/22\nGateway=10.200.0.1\n' >$lan
cat >/run/dbus.conf <<'END'
<busconfig>
  <type>system</type>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow send_type="method_return"/>
    <allow send_type="error"/>
    <allow send_type="signal"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
  </policy>
</busconfig>
END
ip link set lo up
for pair in lan0 t1; do
    ip link add $pair type veth peer name $pair-peer
    ip link set $pair-peer up
done
ip link set t1 up

dbus-daemon --config-file=/run/dbus.conf --nofork --nopidfile &
while [ ! -S /run/dbus/system_bus_socket ]; do sleep 0.1; done
/lib/systemd/systemd-networkd >/dev/null 2>&1 &
has_default() { ip route | grep -q ^default; }
until has_default; do sleep 0.1; done

ip route add unreachable 10.1.0.0/16 metric 4278198272
ip route add unreachable 10.2.0.0/16 proto static metric 254
ip route add 10.2.0.0/16 dev t1 proto bgp metric 20
ip rule add from 10.9.0.0/16 table 77

echo 'Domains=lab.example' >>$lan
ip route delete default
networkctl reload
networkctl reconfigure lan0
# Each of the two takes the default route away for a moment.
stays() { for _ in 1 2 3 4 5; do has_default || return 1; sleep 0.2; done; }
until stays; do sleep 0.1; done
networkctl --json=short >/dev/null 2>&1 || :
ip route
ip rule
# The end of the first process of a PID namespace ends all others.
