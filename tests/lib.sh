# What tests/run and tests/bench share: the programs that a machine needs, and how to install them.
# To be sourced.

say() { printf 'tests/%s: %s\n' "${0##*/}" "$*" >&2; }
fail() { say "$*"; exit 1; }

has() {
    PATH="$PATH:/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin" command -v "$1" >/dev/null
}

# Whether the programs of a package, by its Debian name, are installed.
is_installed() {
    case $1 in
        rabbitmq-server) has rabbitmq-server && has epmd ;;
        mosquitto-clients) has mosquitto_sub ;;
        nghttp2-server) has nghttpd ;;
        nodejs) has node ;;
        procps) has ps ;;
        python3-venv) has python3 && python3 -c 'import ensurepip' 2>/dev/null ;;
        *) has "$1" ;;
    esac
}

install_packages() {
    local root=()
    if [[ $(id -u) != 0 ]]; then
        has sudo || fail "as root, install: $*"
        root=(sudo)
    fi
    say "installing $*"
    local log policy=/usr/sbin/policy-rc.d made_policy=no
    log=$(mktemp)
    # Debian starts a service as soon as it is installed, unless this file forbids it. The tests start
    # servers of their own, and must not leave others running on the machine.
    if [[ ! -e $policy ]]; then
        made_policy=yes
        trap '"${root[@]}" rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' | "${root[@]}" tee "$policy" >/dev/null
        "${root[@]}" chmod +x "$policy"
    fi
    local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qy)
    # An update is needed only if the package lists are absent or out of date.
    if ! "${apt[@]}" install --no-install-recommends "$@" >"$log" 2>&1 </dev/null; then
        if ! { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "$@"; } \
            >>"$log" 2>&1 </dev/null; then
            cat "$log" >&2
            fail "apt-get could not install: $*"
        fi
    fi
    rm -f "$log"
    if [[ $made_policy = yes ]]; then
        "${root[@]}" rm -f "$policy"
        trap - EXIT
    fi
}

# Installs those of these packages (Debian names) that are missing, or says how.
ensure_packages() {
    local missing=() package
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
    done
    [[ ${#missing[@]} -gt 0 ]] || return 0
    if has apt-get; then
        install_packages "${missing[@]}"
    elif [[ $(uname) = Darwin ]]; then
        fail "missing: ${missing[*]}. Install with: brew install redis rabbitmq mosquitto nghttp2 prometheus wrk"
    else
        fail "missing: ${missing[*]} (names of Debian). On Fedora: dnf install redis" \
            "rabbitmq-server mosquitto nghttp2 golang-github-prometheus curl wrk. On Arch: pacman -S" \
            "redis rabbitmq mosquitto nghttp2 prometheus curl wrk"
    fi
}

ensure_cargo() {
    has cargo || PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
    has cargo || fail "needs a Rust toolchain: see https://rustup.rs"
}
