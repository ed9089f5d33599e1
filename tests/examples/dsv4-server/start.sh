# SPDX-License-Identifier: Apache-2.0
# For tests to read: start_server SERVER OPTION... starts it on a free port, in a folder $place that is
# removed at the end, with the server. $url is where it listens.
place=$(mktemp -d)
server_pid=
trap '[ -z "$server_pid" ] || kill -9 "$server_pid" 2>/dev/null; rm -rf "$place"' EXIT

start_server() {
  "$@" --port 0 >"$place/server.out" 2>"$place/server.log" &
  server_pid=$!
  tries=0
  until url=$(sed -n 's/^dsv4-server: .* at \(http:.*\)$/\1/p' "$place/server.out") && [ -n "$url" ]; do
    tries=$((tries + 1))
    kill -0 "$server_pid" 2>/dev/null && [ "$tries" -lt 600 ] ||
      { echo 'FAILED: the server does not start'; cat "$place/server.log"; exit 1; }
    sleep 0.1
  done
}
