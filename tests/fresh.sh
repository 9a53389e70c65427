#!/bin/sh
# fresh.sh [COMMAND…]: runs a command (without one: tests/programs.py) on this machine as our own scripts alone would have
# made it. What a person installed besides is out of sight, so a package that tests/packages.sh forgets is missed here
# and not on somebody else's machine. Where a command fails for want of such a package, the package is named.
#
# A package may be seen if the distribution is never without it (Essential, Priority required, apt), if README.md asks
# for it, if tests/packages.sh lists it, or if one of these depends on it. The files of all others below /usr are
# deleted from an overlay, in a mount namespace that ends with the command. Nothing on the machine changes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# What README.md asks for.
asked="git make python3 python3-venv ca-certificates"

leave_out() {
  echo "tests/fresh.sh: $1, so it is not tried whether tests/packages.sh lists all that tests need" >&2
  exit 0
}
command -v apt-cache >/dev/null || leave_out "not a Debian or Ubuntu"
[ "$(id -u)" -eq 0 ] || leave_out "not root"
[ -L /lib ] || leave_out "/lib is not in /usr"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
mkdir "$work/layer"

cat >"$work/delete.py" <<'END'
# delete.py UPPER: marks files as deleted in an overlay's upper folder: a character device 0, 0 in a file's place.
import os, stat, sys

for line in sys.stdin:
    path = line.rstrip("\n")
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path)):
        place = sys.argv[1] + path.removeprefix("/usr")
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.mknod(place, stat.S_IFCHR, 0)
END

# see NAME…: what may be seen beside the named packages, and so what may not.
dpkg-query --show --showformat='${Package} ${db:Status-Status}\n' | sed -n 's/ installed$//p' | sort -u >"$work/installed"
{
  dpkg-query --show --showformat='${Package} ${Essential} ${Priority}\n' | awk '/ yes | required$/ {print $1}'
  # shellcheck disable=SC2086 # a list of words
  printf '%s\n' apt $asked
  "$here/packages.sh" --list
} >"$work/named"
see() {
  # shellcheck disable=SC2046 # a list of words
  apt-cache depends --recurse --installed --important $(cat "$work/named") "$@" 2>/dev/null |
    sed -n 's/^\([a-z0-9][^: ]*\).*/\1/p' | sort -u >"$work/closure"
  comm -12 "$work/installed" "$work/closure" >"$work/seen"
  comm -23 "$work/installed" "$work/closure" >"$work/rest"
  # Those that packages recommend come first: it is most likely one of them that was forgotten.
  # shellcheck disable=SC2046 # a list of words
  apt-cache depends $(cat "$work/seen") | sed -n 's/^ *|\{0,1\}Recommends: //p' | sort -u |
    comm -12 - "$work/rest" >"$work/others"
  comm -23 "$work/rest" "$work/others" >"$work/last"
  cat "$work/last" >>"$work/others"
}

files() {
  xargs -r dpkg --listfiles | sed -n 's#^/\(bin\|lib\|lib32\|lib64\|libx32\|sbin\)/#/usr/\1/#; \#^/usr/.#p' | sort -u
}

# run COMMAND…: where the files of the packages on standard input, if no other has them, are deleted.
run() {
  files >"$work/theirs"
  files <"$work/seen" | comm -13 - "$work/theirs" >"$work/deleted"
  # shellcheck disable=SC2016 # for the inner shell
  unshare --mount sh -eu -c '
    mount -t tmpfs tmpfs "$1"
    mkdir "$1/upper" "$1/work"
    python3 "$2" "$1/upper" <"$3"
    mount -t overlay overlay -o "lowerdir=/usr,upperdir=$1/upper,workdir=$1/work" /usr
    shift 3
    exec "$@"' sh "$work/layer" "$work/delete.py" "$work/deleted" "$@" </dev/null
}

[ $# -gt 0 ] || set -- "$here/../.venv/bin/python" "$here/programs.py"
see
code=0
run true <"$work/others" 2>"$work/log" || leave_out "no overlay on /usr here: $(tail -n 1 "$work/log")"
run "$@" <"$work/others" || code=$?
[ "$code" -ne 0 ] || exit 0

# Which of the other packages would it take? Of the first ones, as few as suffice; the last of these is one.
forgotten=""
passes_with() { # the first COUNT of the others
  count=$1
  shift
  tail -n +$((count + 1)) "$work/others" | run "$@" >"$work/log" 2>&1
}
while :; do
  total=$(wc -l <"$work/others") low=0 high=8
  until passes_with "$high" "$@"; do
    if [ "$high" -ge "$total" ]; then
      cat "$work/log"
      echo "tests/fresh.sh: it fails with all that is installed, too" >&2
      exit 1
    fi
    low=$high high=$((high * 4))
  done
  while [ $((high - low)) -gt 1 ]; do
    middle=$(((low + high) / 2))
    if passes_with "$middle" "$@"; then high=$middle; else low=$middle; fi
  done
  package=$(sed -n "${high}p" "$work/others")
  forgotten="$forgotten $package"
  # shellcheck disable=SC2086 # a list of words
  see $forgotten
  if passes_with 0 "$@"; then break; fi
done
echo "tests/fresh.sh: needed and not listed by tests/packages.sh:$forgotten" >&2
exit 1
