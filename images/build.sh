#!/usr/bin/env bash
# Builds the images that sessions run in: images/NAME/Dockerfile becomes sandbox-agent/NAME:latest.
# An image carries a hash of its recipe as a label; one whose recipe has not changed is not built again.
# Exit codes: 0 all there, 1 a step failed (the end of its log is printed), 2 usage, 5 no engine.
set -euo pipefail

readonly PULL_S=20 # a registry that hangs must not cost more than this
readonly DEBIAN_SUITE=bookworm
readonly SYSTEM_CA=/etc/ssl/certs/ca-certificates.crt
readonly CA_VARIABLES=(SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS GIT_SSL_CAINFO PIP_CERT)
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
    cat <<'TEXT'
usage: images/build.sh [--fresh] [NAME...]

Builds sandbox-agent/NAME:latest from images/NAME/Dockerfile; without a NAME all of them.
The Debian base comes from a registry where one answers, else it is made from Debian packages with mmdebstrap.

  --fresh   make everything again, the Debian base included (for security updates)

Environment, all optional:
  APT_MIRROR   Debian mirror for the packages, e.g. http://mirror.example.org/debian; its packages' signatures are checked
  BASE         another base image than the Dockerfile's (Debian 12 or newer), e.g. one from your own registry
  http_proxy, https_proxy, no_proxy (also in capitals)   handed to the build when set
  CA_BUNDLE    certificates that apt, pip, npm, git and curl trust during the build, beside this machine's own; if unset,
               what SSL_CERT_FILE, REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE, NODE_EXTRA_CA_CERTS, GIT_SSL_CAINFO and PIP_CERT name
TEXT
}

say() { printf 'image: %s\n' "$*"; }
stop() { printf 'image: %s\n' "$1" >&2; exit "${2:-1}"; }
label_of() { docker image inspect --format "{{index .Config.Labels \"$2\"}}" "$1" 2>/dev/null || true; }

# step TEXT COMMAND...: one line before and after; what the command prints goes to the log, its end is shown on failure.
step() {
    local text=$1 started=$SECONDS
    shift
    say "$text ..."
    if ! "$@" >>"$LOG" 2>&1; then
        tail -n 25 "$LOG" >&2
        trap 'rm -f "$WORK/base.tar"' EXIT
        stop "$text failed after $((SECONDS - started)) s. Above are the last lines of $LOG"
    fi
    say "$text: done in $((SECONDS - started)) s"
}

# Makes the base image $1 be there: reused, else pulled, else (Debian only) made from packages.
ensure_base() {
    local base=$1
    if [[ $base == sandbox-agent/*:latest ]]; then
        build "$(basename "${base%:latest}")"
        return
    fi
    if [ "$FRESH" = no ] && docker image inspect "$base" >/dev/null 2>&1; then return; fi
    say "asking the registry for $base"
    if timeout -k 2 "$PULL_S" docker pull "$base" >>"$LOG" 2>&1; then return; fi
    say "no registry gave us $base within $PULL_S s"
    if docker image inspect "$base" >/dev/null 2>&1 && [ -z "$(label_of "$base" sandbox-agent.base-source)" ]; then return; fi
    [ "$base" = "debian:$DEBIAN_SUITE-slim" ] || stop "$base is not here and cannot be pulled. Load it, or leave BASE unset."
    command -v mmdebstrap >/dev/null ||
        stop "$base cannot be pulled, and mmdebstrap, which could make it from Debian packages, is missing. Run: sudo apt-get install mmdebstrap"
    local tar=$WORK/base.tar
    step "making $base from Debian packages" bootstrap "$tar"
    # The label says for good that this is not the image of that name from the registry.
    step "importing $base" docker import --change 'CMD ["bash"]' --change 'LABEL sandbox-agent.base-source=debian-packages' "$tar" "$base"
    rm -f "$tar"
}

# SOURCE_DATE_EPOCH makes two tars of the same packages identical, so the engine stores the layer once.
bootstrap() {
    local mode=root keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    [ "$(id -u)" -eq 0 ] || mode=unshare
    [ -r "$keyring" ] || { echo "$keyring is missing. Run: sudo apt-get install debian-archive-keyring"; return 1; }
    # Without sources mmdebstrap takes Debian's own archive, with updates and security. A mirror often has no security.
    local sources=() suite
    for suite in ${APT_MIRROR:+"$DEBIAN_SUITE" "$DEBIAN_SUITE-updates"}; do
        sources+=("deb [signed-by=$keyring] $APT_MIRROR $suite main")
    done
    SOURCE_DATE_EPOCH=1704067200 mmdebstrap --mode="$mode" --variant=minbase --keyring="$keyring" --aptopt='Acquire::Languages "none"' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        "$DEBIAN_SUITE" "$1" "${sources[@]}"
}

# The hash of everything that goes into an image: its files, their modes, the base's name and the mirror.
recipe_of() {
    local name=$1 base=$2
    (
        cd "$HERE/$name"
        printf '%s\n' "$base" "${APT_MIRROR:-}"
        find . -type f -printf '%p %m\n' | LC_ALL=C sort
        find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum --
        if [[ $base == sandbox-agent/*:latest ]]; then label_of "$base" sandbox-agent.recipe; fi
    ) | sha256sum | cut -c 1-64
}

# Fills BUILD_ARGS: proxies only when set, and the host's network where a proxy is on localhost or there is no bridge.
collect_build_args() {
    BUILD_ARGS=()
    local variable value
    for variable in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
        value=${!variable:-}
        [ -n "$value" ] || continue
        BUILD_ARGS+=(--build-arg "$variable=$value")
        if [[ $value =~ ^https?://(localhost|127\.) ]]; then BUILD_ARGS+=(--network host); fi
    done
    if ! docker network inspect bridge >/dev/null 2>&1; then BUILD_ARGS+=(--network host); fi
    if [ "$FRESH" = yes ]; then BUILD_ARGS+=(--no-cache); fi
    if [ -n "${APT_MIRROR:-}" ]; then BUILD_ARGS+=(--build-arg "APT_MIRROR=$APT_MIRROR"); fi
    # A client without the buildx plugin stops at once unless it is told to use the engine's own builder.
    if docker buildx version >/dev/null 2>&1; then BUILD_ARGS+=(--load); else export DOCKER_BUILDKIT=0; fi
}

# Prints the certificates for a build (and nothing else that is in those files); nothing where no variable names any.
certificates() {
    local variable files=()
    if [ -n "${CA_BUNDLE:-}" ]; then
        [ -r "$CA_BUNDLE" ] || stop "CA_BUNDLE names $CA_BUNDLE, which cannot be read. Name a file with PEM certificates, or unset it." 2
        files=("$CA_BUNDLE")
    else
        for variable in "${CA_VARIABLES[@]}"; do
            if [ -n "${!variable:-}" ] && [ -r "${!variable}" ]; then files+=("${!variable}"); fi
        done
    fi
    [ ${#files[@]} -gt 0 ] || return 0
    if [ -r "$SYSTEM_CA" ]; then files+=("$SYSTEM_CA"); fi
    printf '%s\0' "${files[@]}" | LC_ALL=C sort -zu |
        xargs -0 awk '/^-----BEGIN CERTIFICATE-----/ { inside = 1 } inside { print } /^-----END CERTIFICATE-----/ { inside = 0 }'
}

# Sets CONTEXT to the folder to build $1 from: its own, or a copy whose recipe has the certificates in the build alone.
# The old builder has neither secrets nor mounts, so they are copied in first and removed last; ARGs end with the build.
prepare_context() {
    local name=$1 conf=etc/apt/apt.conf.d/99sandbox-agent-ca pem=etc/sandbox-agent-ca.pem variable lines
    CONTEXT=$HERE/$name
    certificates >"$WORK/ca.pem"
    [ -s "$WORK/ca.pem" ] || return 0
    CONTEXT=$WORK/$name
    cp -R "$HERE/$name" "$CONTEXT"
    cp "$WORK/ca.pem" "$CONTEXT/sandbox-agent-ca.pem"
    echo "Acquire::https::CaInfo \"/$pem\";" >"$CONTEXT/sandbox-agent-ca.conf"
    lines="COPY sandbox-agent-ca.pem /$pem\nCOPY sandbox-agent-ca.conf /$conf"
    for variable in "${CA_VARIABLES[@]}"; do lines+="\nARG $variable=/$pem"; done
    sed -e "s#^FROM \\\${BASE}\$#&\n$lines#" -e "\$ a RUN rm -f /$conf /$pem" "$HERE/$name/Dockerfile" >"$CONTEXT/Dockerfile"
}

build() {
    local name=$1 tag="sandbox-agent/$1:latest" base recipe source
    [ -f "$HERE/$name/Dockerfile" ] || stop "there is no images/$name/Dockerfile. Names: $(names)" 2
    base=$(sed -n 's/^ARG BASE=//p' "$HERE/$name/Dockerfile" | head -n 1)
    [ "$name" != base ] || base=${BASE:-$base}
    if [[ $base == sandbox-agent/*:latest ]]; then ensure_base "$base"; fi
    recipe=$(recipe_of "$name" "$base")
    if [ "$FRESH" = no ] && [ "$(label_of "$tag" sandbox-agent.recipe)" = "$recipe" ]; then
        say "$tag is up to date"
        return
    fi
    ensure_base "$base"
    source=$(label_of "$base" sandbox-agent.base-source)
    collect_build_args
    prepare_context "$name"
    step "building $tag" docker build "${BUILD_ARGS[@]}" --build-arg "BASE=$base" --label "sandbox-agent.image=$name" \
        --label "sandbox-agent.recipe=$recipe" --label "sandbox-agent.base-source=${source:-registry}" --tag "$tag" "$CONTEXT"
}

names() { (cd "$HERE" && printf '%s\n' */Dockerfile | xargs -n 1 dirname | paste -sd ' '); }

main() {
    FRESH=no
    local wanted=() name
    while [ $# -gt 0 ]; do
        case "$1" in
            --fresh) FRESH=yes ;;
            -h | --help) usage; exit 0 ;;
            -*) usage >&2; exit 2 ;;
            *) wanted+=("$1") ;;
        esac
        shift
    done
    [ ${#wanted[@]} -gt 0 ] || read -ra wanted <<<"$(names)"
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/sandbox-agent-image.XXXXXX")
    LOG=$WORK/log
    trap 'rm -rf "$WORK"' EXIT # a failed step keeps the log
    # Two at once would build the same layers twice; the second waits, then finds everything up to date.
    exec 9<"$HERE/build.sh"
    if command -v flock >/dev/null && ! flock -n 9; then say "another build is running; waiting for it"; flock 9; fi
    "$HERE/engine.sh" --check >>"$LOG" 2>&1 || { tail -n 1 "$LOG" >&2; exit 5; }
    for name in "${wanted[@]}"; do build "$name"; done
}

main "$@"
