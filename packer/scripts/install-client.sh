#!/bin/sh
# The client that runs cookbooks, CINC or Chef Infra Client, in the pinned version, from a package that was brought
# along: no machine asks its makers' site. What has that version already stays; the other client goes. Images are baked
# with this, and `invoke enroll` and `invoke converge` run it on machines.
#
#   CLIENT           cinc or chef
#   CLIENT_VERSION   18.7.10
#   CLIENT_PACKAGE   a Debian package, removed afterwards
#   CLIENT_SHA256    of that package
set -eu

program=/opt/$CLIENT/bin/$CLIENT-client
lists=$(mktemp -d)
trap 'rm -rf "$CLIENT_PACKAGE" "$lists"' EXIT
export DEBIAN_FRONTEND=noninteractive
installed() { dpkg-query -W -f '${db:Status-Abbrev}${Version}' "$1" 2>/dev/null || true; }
# A fresh machine upgrades itself meanwhile: wait for dpkg's lock. Nothing of an archive is wanted, so its lists, which
# take seconds to read, are not looked at.
apt() {
  if said=$(apt-get -o DPkg::Lock::Timeout=600 -o Dir::State::Lists="$lists" -o Dir::Cache::pkgcache= \
    -o Dir::Cache::srcpkgcache= -q -y "$@" 2>&1); then return; fi
  echo "$said" >&2
  return 1
}

case $(installed "$CLIENT") in
[ih]"i $CLIENT_VERSION" | [ih]"i $CLIENT_VERSION-"*) ;;
*)
  if ! echo "$CLIENT_SHA256  $CLIENT_PACKAGE" | sha256sum -c --status -; then
    echo "the package of $CLIENT is not the one that is pinned:" >&2
    echo "wanted $CLIENT_SHA256, got $(sha256sum "$CLIENT_PACKAGE" | cut -d' ' -f1)" >&2
    exit 1
  fi
  apt install --no-install-recommends --allow-downgrades --allow-change-held-packages "$CLIENT_PACKAGE"
  case $(installed "$CLIENT") in
  [ih]"i $CLIENT_VERSION" | [ih]"i $CLIENT_VERSION-"*) ;;
  *)
    echo "the package holds $(installed "$CLIENT"), and $CLIENT_VERSION is pinned" >&2
    exit 1
    ;;
  esac
  ;;
esac
apt-mark hold "$CLIENT" >/dev/null

other=chef
if [ "$CLIENT" = chef ]; then other=cinc; fi
case $(installed "$other") in [ih]i*) apt purge --allow-change-held-packages "$other" ;; esac

if [ ! -x "$program" ]; then
  echo "$CLIENT $CLIENT_VERSION has no $program" >&2
  exit 1
fi
mkdir -p /usr/local/lib/causeway
ln -sfn "$program" /usr/local/lib/causeway/client
