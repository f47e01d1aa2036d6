#!/usr/bin/env bash
# Makes sure that a Docker Engine answers, or says in one line what is wrong and what to do.
# Order of endpoints: DOCKER_HOST, the Docker context, the default socket; the docker command itself resolves them.
# Only the default socket is ever repaired: an endpoint that the user chose is the user's, so we stop and say so.
# Exit codes: 0 an engine answers, 2 usage, 5 no engine.
set -euo pipefail

readonly START_S=60
readonly SOCKET=/var/run/docker.sock PID_FILE=/var/run/docker.pid
readonly CONTAINERD_PID_FILE=/var/run/docker/containerd/containerd.pid
readonly DOCKERD_LOG=/var/log/sandbox-agent-dockerd.log

usage() {
    cat <<'TEXT'
usage: images/engine.sh [--check] [--answer-within SECONDS] [--started-pid-file FILE]

Makes sure that a Docker Engine answers. On Debian and Ubuntu, as root, it installs docker.io and starts dockerd
when nothing answers at the default socket. An endpoint set by DOCKER_HOST or a Docker context is never touched.

  --check                  only look; install and start nothing
  --answer-within SECONDS  an engine that needs longer is hung (default 10; a healthy one needs 0.1)
  --started-pid-file FILE  write the process id of a dockerd started here to FILE (nothing if one was there)
TEXT
}

say() { printf 'engine: %s\n' "$*"; }
stop() { printf 'engine: %s\n' "$*" >&2; exit 5; }
misused() { printf 'engine: %s\n' "$*" >&2; exit 2; }

# Sets ENDPOINT and ORIGIN, as the docker command will resolve them. The name of the context is read from its file:
# old clients ask the engine before "docker context show" answers, and hang when it does.
resolve_endpoint() {
    local config="${DOCKER_CONFIG:-${HOME:-/root}/.docker}/config.json" context=${DOCKER_CONTEXT:-}
    ENDPOINT="unix://$SOCKET" ORIGIN="default socket"
    if [ -n "${DOCKER_HOST:-}" ]; then
        ENDPOINT=$DOCKER_HOST ORIGIN=DOCKER_HOST
        return
    fi
    [ -n "$context" ] || context=$(sed -nE 's/.*"currentContext": *"([^"]*)".*/\1/p' "$config" 2>/dev/null || true)
    if [ -n "$context" ] && [ "$context" != default ]; then
        ORIGIN="Docker context $context"
        ENDPOINT=$(timeout -k 1 "$ANSWER_S" docker context inspect --format '{{.Endpoints.docker.Host}}' "$context" 2>/dev/null) ||
            ENDPOINT="an unknown address"
    fi
}

# 0 and VERSION when the engine answers; else PROBLEM is one of missing-cli, hung, denied, silent, and DETAIL the client's last line.
ask() {
    command -v docker >/dev/null || { PROBLEM=missing-cli DETAIL=; return 1; }
    local answer status=0
    answer=$(timeout -k 1 "$ANSWER_S" docker version --format '{{.Server.Version}}' 2>&1) || status=$?
    if [ "$status" -eq 0 ]; then VERSION=$answer; return 0; fi
    DETAIL=$(printf '%s\n' "$answer" | grep -v '^$' | tail -n 1 | sed -E 's/( Is the docker daemon running\?|\.)+$//')
    case "$status:$answer" in
        124:* | 137:*) PROBLEM=hung ;;
        *"permission denied"*) PROBLEM=denied ;;
        *) PROBLEM=silent ;;
    esac
    return 1
}

# The user chose this endpoint: name it, say what it did, stop.
stop_for_chosen_endpoint() {
    local way_out="Start that engine, or unset DOCKER_HOST to use the default socket."
    if [ -z "${DOCKER_HOST:-}" ]; then way_out="Start that engine, or ${DOCKER_CONTEXT:+unset DOCKER_CONTEXT and }run: docker context use default"; fi
    case "$PROBLEM" in
        missing-cli) stop "there is no docker command to reach $ENDPOINT ($ORIGIN). Install the Docker command line client." ;;
        hung) stop "$ENDPOINT ($ORIGIN) gave no answer within $ANSWER_S s. $way_out" ;;
        denied) stop "no permission to use $ENDPOINT ($ORIGIN). Ask its owner for access. $way_out" ;;
        *) stop "$ENDPOINT ($ORIGIN) does not answer: $DETAIL. $way_out" ;;
    esac
}

# Nothing at the default socket that we may or can repair: one line for each reason.
stop_for_default_socket() {
    local user
    user=$(id -un 2>/dev/null || id -u)
    case "$PROBLEM" in
        denied) stop "no permission on $SOCKET. Run: sudo usermod -aG docker $user   then log out and in again." ;;
        hung) stop "$SOCKET takes connections but gave no answer within $ANSWER_S s. Restart that engine (often: sudo systemctl restart docker)." ;;
    esac
    if [ "$(uname -s)" != Linux ]; then
        stop "no Docker Engine answers at $SOCKET. Start Docker Desktop, Colima or OrbStack, then try again."
    elif [ -n "${1:-}" ]; then
        stop "no Docker Engine answers at $SOCKET: ${DETAIL:-no docker command}. $1"
    elif [ "$(id -u)" -ne 0 ]; then
        stop "no Docker Engine answers at $SOCKET and you are not root. Run: sudo $0   (or ask an administrator to start Docker)"
    else
        stop "no Docker Engine answers at $SOCKET and this is not Debian or Ubuntu. Install Docker Engine for your system, start it, then try again."
    fi
}

is_debian() { grep -qE '^(ID|ID_LIKE)="?(.* )?debian( .*)?"?$' /etc/os-release 2>/dev/null && command -v apt-get >/dev/null; }

# Installs what is missing. Debian 13 moved the client from docker.io to docker-cli; a kernel with AppArmor needs its parser.
install_engine() {
    local wanted=()
    command -v dockerd >/dev/null || wanted+=(docker.io)
    command -v mmdebstrap >/dev/null || wanted+=(mmdebstrap) # images/build.sh needs it where no registry answers
    if [ "$(cat /sys/module/apparmor/parameters/enabled 2>/dev/null)" = Y ] && ! command -v apparmor_parser >/dev/null; then wanted+=(apparmor); fi
    local apt=(apt-get -qq -o DPkg::Lock::Timeout=300) log
    log=$(mktemp)
    if [ ${#wanted[@]} -gt 0 ] || ! command -v docker >/dev/null; then
        say "installing ${wanted[*]:-docker-cli} (about a minute)"
        export DEBIAN_FRONTEND=noninteractive
        "${apt[@]}" update >"$log" 2>&1 || say "apt-get update failed; trying with the package lists that are here"
        if ! command -v docker >/dev/null && apt-cache show docker-cli >/dev/null 2>&1; then wanted+=(docker-cli); fi
        if ! "${apt[@]}" install -y --no-install-recommends "${wanted[@]}" >>"$log" 2>&1; then
            tail -n 15 "$log" >&2
            stop "apt-get could not install ${wanted[*]} (its last lines are above). Repair that, then try again."
        fi
    fi
    rm -f "$log"
    hash -r
}

# A pid file outlives a crash or a copied disk; dockerd refuses to start while any process has that number.
drop_stale_pid_file() {
    local file=$1 program=$2 pid
    [ -s "$file" ] || return 0
    pid=$(tr -dc 0-9 <"$file")
    if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != "$program" ]; then rm -f "$file"; fi
}

# Without an init system nobody has mounted the control groups.
mount_control_groups() {
    if [ -e /sys/fs/cgroup/cgroup.controllers ] || mountpoint -q /sys/fs/cgroup; then return 0; fi
    say "mounting the control groups"
    if [ -z "$(awk '$1 != "#subsys_name" && $2 != 0' /proc/cgroups)" ]; then
        mount -t cgroup2 cgroup2 /sys/fs/cgroup
        return 0
    fi
    mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
    local controller
    awk '$1 != "#subsys_name" && $4 == 1 {print $1}' /proc/cgroups | while read -r controller; do
        mkdir -p "/sys/fs/cgroup/$controller"
        mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller" || rmdir "/sys/fs/cgroup/$controller"
    done
}

# Waits until the engine answers; gives up early when the process $1 (if any) has ended.
wait_for_answer() {
    local deadline=$((SECONDS + START_S))
    while [ "$SECONDS" -lt "$deadline" ]; do
        if ask; then return 0; fi
        if [ -n "${1:-}" ] && ! kill -0 "$1" 2>/dev/null; then return 1; fi
        sleep 0.3
    done
    return 1
}

# Starts dockerd in a session of its own, so that a Ctrl-C here or the end of this terminal does not end it.
launch() {
    setsid dockerd "$@" </dev/null >>"$DOCKERD_LOG" 2>&1 &
    DOCKERD_PID=$!
    wait_for_answer "$DOCKERD_PID"
}

start_engine() {
    if [ -d /run/systemd/system ]; then
        say "starting docker.service"
        systemctl start docker || stop "systemctl start docker failed. See: journalctl -u docker -n 50"
        wait_for_answer || stop "docker.service started but gave no answer within $START_S s. See: journalctl -u docker -n 50"
        return 0
    fi
    drop_stale_pid_file "$PID_FILE" dockerd
    drop_stale_pid_file "$CONTAINERD_PID_FILE" containerd
    if [ -s "$PID_FILE" ]; then
        say "a dockerd (process $(cat "$PID_FILE")) is there; waiting for it"
        wait_for_answer || stop "dockerd (process $(cat "$PID_FILE" 2>/dev/null)) gave no answer within $START_S s. End it, then try again."
        return 0
    fi
    mount_control_groups
    say "starting dockerd (log: $DOCKERD_LOG)"
    : >"$DOCKERD_LOG"
    if ! launch; then
        # Kernels without the NAT table cannot have the bridge. Sessions have no network anyway; images build on the host's.
        if kill -0 "$DOCKERD_PID" 2>/dev/null || ! grep -qiE 'iptables|bridge' "$DOCKERD_LOG"; then dockerd_failed; fi
        say "this machine cannot have Docker's bridge network; starting without it"
        launch --iptables=false --bridge=none || dockerd_failed
    fi
    if [ -n "$STARTED_PID_FILE" ]; then echo "$DOCKERD_PID" >"$STARTED_PID_FILE"; fi
}

dockerd_failed() {
    tail -n 15 "$DOCKERD_LOG" >&2
    if kill "$DOCKERD_PID" 2>/dev/null; then stop "dockerd gave no answer within $START_S s (above: the end of $DOCKERD_LOG)."; fi
    stop "dockerd ended by itself (above: the end of $DOCKERD_LOG). Repair the cause, then try again."
}

main() {
    ANSWER_S=10 CHECK_ONLY=no STARTED_PID_FILE=
    while [ $# -gt 0 ]; do
        case "$1" in
            --check) CHECK_ONLY=yes ;;
            --answer-within)
                [[ ${2:-} =~ ^[0-9]+(\.[0-9]+)?$ && $2 =~ [1-9] ]] || misused "--answer-within needs a number of seconds"
                ANSWER_S=$2; shift ;;
            --started-pid-file)
                [ -n "${2:-}" ] || misused "--started-pid-file needs a file name"
                STARTED_PID_FILE=$2; shift ;;
            -h | --help) usage; exit 0 ;;
            *) usage >&2; exit 2 ;;
        esac
        shift
    done
    resolve_endpoint
    if ask; then say "Docker $VERSION answers at $ENDPOINT ($ORIGIN)"; exit 0; fi
    [ "$ORIGIN" = "default socket" ] || stop_for_chosen_endpoint
    if [ "$CHECK_ONLY" = yes ] && [ "$PROBLEM" != denied ] && [ "$PROBLEM" != hung ]; then stop_for_default_socket "Run: $0"; fi
    if [ "$PROBLEM" = denied ] || [ "$PROBLEM" = hung ] || [ "$(id -u)" -ne 0 ]; then stop_for_default_socket; fi
    # Someone else may install or start at the same moment: flock lets one through, the others find the engine answering.
    exec 9<"$0"
    if command -v flock >/dev/null; then flock 9; fi
    if is_debian; then install_engine 9<&-; fi
    if ! command -v dockerd >/dev/null || ! command -v docker >/dev/null; then stop_for_default_socket; fi
    if ! ask; then start_engine 9<&-; fi
    say "Docker $VERSION answers at $ENDPOINT ($ORIGIN)"
}

main "$@"
