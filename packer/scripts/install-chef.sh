#!/bin/sh
# Chef Infra Client in the pinned version: a package whose checksum is known, or one of a signed APT repository. What
# is there already stays. Images are baked with this, and `invoke enroll` runs it on bare machines.
#
#   CHEF_VERSION      18.11.21
#   CHEF_URL          a package; %{arch} stands for amd64 or arm64. Empty: from the repository
#   CHEF_SHA256       of that package
#   CHEF_APT          the repository (default: Chef's own, https://docs.chef.io/packages/)
#   CHEF_APT_KEY      the key that signs it
#   CHEF_APT_SUITE    the release it is for (default: this one's code name)
set -eu

if command -v chef-client >/dev/null; then
  echo "here already: $(CHEF_LICENSE=accept-no-persist chef-client --version)"
  exit 0
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# A mirror may need a moment; a file that is not the right one is not tried again.
fetch() {
  if command -v curl >/dev/null; then
    curl -fsSL --retry 5 --retry-connrefused --max-time 600 -o "$2" "$1"
  else
    wget -q --tries=5 --timeout=60 -O "$2" "$1"
  fi
}

export DEBIAN_FRONTEND=noninteractive
arch=$(dpkg --print-architecture)
if [ -n "${CHEF_URL:-}" ]; then
  url=$(printf '%s' "$CHEF_URL" | sed "s/%{arch}/$arch/g")
  if [ -z "${CHEF_SHA256:-}" ]; then
    echo "$url has no checksum; add software.chef.sha256 to the spec" >&2
    exit 1
  fi
  fetch "$url" "$folder/chef.deb"
  if ! echo "$CHEF_SHA256  $folder/chef.deb" | sha256sum -c --status -; then
    echo "$url is not the package that is pinned:" >&2
    echo "wanted $CHEF_SHA256, got $(sha256sum "$folder/chef.deb" | cut -d' ' -f1)" >&2
    exit 1
  fi
  dpkg -i "$folder/chef.deb"
else
  repository=${CHEF_APT:-https://packages.chef.io/repos/apt/stable}
  # shellcheck source=/dev/null
  suite=${CHEF_APT_SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
  mkdir -p /etc/apt/keyrings
  fetch "${CHEF_APT_KEY:-https://packages.chef.io/chef.asc}" "$folder/chef.asc"
  install -m 0644 "$folder/chef.asc" /etc/apt/keyrings/chef.asc
  printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' \
    "$repository" "$suite" /etc/apt/keyrings/chef.asc >/etc/apt/sources.list.d/chef.sources
  apt-get update -qq
  apt-get install -qq -y --no-install-recommends "chef=$CHEF_VERSION*" >/dev/null
  apt-mark hold chef >/dev/null
fi

found=$(CHEF_LICENSE=accept-no-persist chef-client --version)
case $found in
*" $CHEF_VERSION"*) echo "$found" ;;
*)
  echo "this is $found, and $CHEF_VERSION is pinned" >&2
  exit 1
  ;;
esac
