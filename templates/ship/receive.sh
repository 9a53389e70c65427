#!/bin/sh
# Puts a tree of files, a tar archive on standard input, onto this machine, and takes away what an earlier one
# put here and this one no longer has. Each file is replaced in one step, and only if it differs, so that a
# daemon never reads half of one. Prints the paths that changed.
#   receive.sh NAME COUNT    NAME tells one tree from another; COUNT is how many files it has
# The last line is a dot: who does not see it has not seen all, and finds it in /var/lib/causeway/NAME/told.
set -eu
umask 077
kept=/var/lib/causeway/$1
mkdir -p "$kept"
rm -rf "$kept/incoming"
mkdir "$kept/incoming"
# With the time of now: OpenVPN reads a revocation list again only if its time or size is another.
tar -x -p -m --no-same-owner -f - -C "$kept/incoming"
cd "$kept/incoming"
find . -type f | sed 's/^\.//' | sort >"$kept/files.new"
# tar takes an archive that ends between two files for whole, and the rest would be taken away here.
[ "$(wc -l <"$kept/files.new")" -eq "$2" ] || { echo "the archive was cut off" >&2; exit 1; }
touch "$kept/files"
# Until all is in place, both lists count: a run that is cut off is made good by the next one.
sort -u "$kept/files" "$kept/files.new" >"$kept/files.both"
mv "$kept/files.both" "$kept/files"
# contents FOLDER: digest and mode of those of the new files that are below it. Few processes for many files.
contents() (
  cd "$1"
  sed 's/^/./' "$kept/files.new" | xargs -r -d '\n' sha256sum 2>/dev/null || :
  sed 's/^/./' "$kept/files.new" | xargs -r -d '\n' stat -c '%a %n' 2>/dev/null || :
)
contents "$kept/incoming" | sort >"$kept/contents.new"
contents / | sort >"$kept/contents"
comm -23 "$kept/contents.new" "$kept/contents" | sed 's/^[^ ]* *\.//' | sort -u >"$kept/files.changed"
rm "$kept/contents" "$kept/contents.new"
# Changes of an interrupted run are reported by the next one, which is the first to reload them.
touch "$kept/files.untold"
sort -u "$kept/files.untold" "$kept/files.changed" >"$kept/files.told"
mv "$kept/files.told" "$kept/files.untold"
while read -r path; do
  (umask 022 && mkdir -p "${path%/*}")
  # A file keeps the owner that the machine gave it: a key may be a daemon's.
  owner=root:root
  [ -f "$path" ] && owner=$(stat -c %u:%g "$path")
  cp -p ".$path" "$path.causeway-new"
  chown "$owner" "$path.causeway-new"
  mv -f "$path.causeway-new" "$path"
done <"$kept/files.changed"
comm -13 "$kept/files.new" "$kept/files" >"$kept/files.gone"
while read -r path; do
  rm -f "$path"
done <"$kept/files.gone"
sort -u "$kept/files.untold" "$kept/files.gone" >"$kept/told"
mv "$kept/files.new" "$kept/files"
rm -rf "$kept/incoming" "$kept/files.untold" "$kept/files.changed" "$kept/files.gone"
cat "$kept/told"
echo .
