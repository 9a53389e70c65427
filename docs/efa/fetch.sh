#!/bin/sh
# fetch.sh VERSION FOLDER: AWS's installer of EFA, unpacked into the folder if the key of its makers signed it.
set -eu
version=$1 folder=$2
# EC2 User Guide, "Get started with EFA and MPI", step 3.
fingerprint=${EFA_FINGERPRINT:-4E9091BCBB97A96B26B15E59A05480B1DD2D3CCC}
from=${EFA_URL:-https://efa-installer.amazonaws.com}
archive=aws-efa-installer-$version.tar.gz

cd "$folder"
for name in "$archive" "$archive.sig" aws-efa-installer.key; do
    curl --fail --silent --show-error --location --retry 3 --output "$name" "$from/$name"
done
GNUPGHOME=$(mktemp -d)
export GNUPGHOME
trap 'rm -rf "$GNUPGHOME"' EXIT
gpg --batch --quiet --import aws-efa-installer.key
gpg --batch --status-file status --verify "$archive.sig" "$archive"
# The last field is the primary key, also when a subkey signed (GnuPG, doc/DETAILS, VALIDSIG).
if ! grep -q "^\[GNUPG:\] VALIDSIG .* $fingerprint\$" status; then
    echo "$archive is not signed by the key $fingerprint" >&2
    exit 1
fi
tar -xzf "$archive"
