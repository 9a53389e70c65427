# One run of the client that runs cookbooks, in local mode, on the machine. Standard input says how long: when it ends, because
# the engineer's end stopped or was lost, the run is ended too. Arguments: the node's name, then the client's options.
set -u
name=$1
shift

# The pinned one; a rehearsal, which installs nothing, makes do with one that was there before.
client=""
for candidate in /usr/local/lib/causeway/client cinc-client chef-client; do
  [ -n "$client" ] || client=$(command -v "$candidate" 2>/dev/null) || client=""
done
if [ -z "$client" ]; then
  echo "neither CINC nor Chef Infra Client is here" >&2
  exit 127
fi

: >/run/causeway-converge
# A session of its own: the whole run is ended by one signal, also what it has started.
setsid "$client" --local-mode --config /var/lib/causeway/chef/client.rb --node-name "$name" \
  --no-color --force-formatter --logfile /var/log/causeway-converge.log "$@" </dev/null 2>&1 &
run=$!
# A background job's input is /dev/null unless it is said otherwise.
exec 3<&0
{
  cat >/dev/null
  # Its group is there once setsid has run, which on a busy machine may be a moment from now.
  until kill -TERM "-$run"; do
    kill -0 "$run" || exit
    sleep 0.1
  done
  # Chef ends at the next resource, a package manager at its next step; both have a minute.
  sleep 60
  kill -KILL "-$run"
} <&3 >/dev/null 2>&1 &
watch=$!

wait "$run"
code=$?
kill "$watch" 2>/dev/null
pkill -P "$watch" 2>/dev/null
exit "$code"
