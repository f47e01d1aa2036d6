#!/usr/bin/env bash
# Installs what `make bench` compares with, each in a place of its own under $BENCH_DIR (default: a folder in the temporary
# directory; the bench looks in the same place). Needs sandbox-agent/base:latest ("make image"). Run again, it only adds what
# is missing. Exit codes: 0 all there, 1 a step failed, 2 usage.
set -euo pipefail
cd "$(dirname "$0")"

readonly DIR=${BENCH_DIR:-${TMPDIR:-/tmp}/sandbox-agent-bench}
readonly PYTHON=${PYTHON:-python3}
readonly BASE=sandbox-agent/base:latest IMAGE=sandbox-agent-bench/swerex:latest
readonly MINI=mini-swe-agent==2.4.6 SWEREX=swe-rex==1.4.0 CLAUDE=2.1.197

say() { printf 'peers: %s\n' "$*"; }
stop() { printf 'peers: %s\n' "$*" >&2; exit 1; }

venv() {
    local name=$1
    shift
    if "$DIR/$name/bin/python" -c '' 2>/dev/null && [ -e "$DIR/$name/.installed" ]; then say "$name is there"; return; fi
    say "installing $*"
    "$PYTHON" -m venv --clear "$DIR/$name"
    "$DIR/$name/bin/python" -m pip install -q --disable-pip-version-check "$@" 2>"$DIR/$name.log" || { tail -n 5 "$DIR/$name.log" >&2; stop "pip could not install $*"; }
    touch "$DIR/$name/.installed"
}

# swerex-remote must be in the image, or every session start would install it. The wheels are those of the image's Python.
swerex_image() {
    local base_id context python_version
    base_id=$(docker image inspect --format '{{.Id}}' "$BASE" 2>/dev/null) || stop "$BASE is not here; run: make image"
    if [ "$(docker image inspect --format '{{index .Config.Labels "sandbox-agent.bench-base"}}' "$IMAGE" 2>/dev/null)" = "$base_id" ]; then
        say "$IMAGE is there"
        return
    fi
    say "building $IMAGE"
    context=$DIR/image-swerex
    rm -rf "$context" && mkdir -p "$context"
    python_version=$(docker run --rm --network none "$BASE" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$DIR/v-swerex/bin/python" -m pip install -q --disable-pip-version-check --target "$context/site" --only-binary=:all: \
        --python-version "$python_version" --implementation cp --platform "manylinux2014_$(uname -m)" --platform "manylinux_2_28_$(uname -m)" \
        "$SWEREX" 2>"$DIR/image-swerex.log" || { tail -n 5 "$DIR/image-swerex.log" >&2; stop "pip could not fetch $SWEREX for the image"; }
    cp swerex.Dockerfile "$context/Dockerfile"
    if ! docker buildx version >/dev/null 2>&1; then export DOCKER_BUILDKIT=0; fi
    docker build -q --label "sandbox-agent.bench-base=$base_id" -t "$IMAGE" "$context" >/dev/null
}

claude_code() {
    local package
    case "$(uname -m)" in
        x86_64) package=@anthropic-ai/claude-code-linux-x64 ;;
        aarch64) package=@anthropic-ai/claude-code-linux-arm64 ;;
        *) stop "Claude Code has no package for $(uname -m)" ;;
    esac
    if [ "$(sed -n 's/.*"version": "\(.*\)".*/\1/p' "$DIR/node_modules/$package/package.json" 2>/dev/null)" = "$CLAUDE" ]; then
        say "Claude Code $CLAUDE is there"
        return
    fi
    command -v npm >/dev/null || stop "npm is missing; Claude Code comes from there"
    say "installing $package $CLAUDE"
    npm install --silent --no-save --prefix "$DIR" "$package@$CLAUDE"
}

[ $# -eq 0 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
mkdir -p "$DIR"
venv v-mini "$MINI"
venv v-swerex "$SWEREX" aiohttp
swerex_image
claude_code
say "all in $DIR; now: make bench"
