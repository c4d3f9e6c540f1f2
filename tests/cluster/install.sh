#!/bin/sh
# Installs the schedulers of tests/cluster from Debian's packages and starts none of them: the
# fixtures run daemons of their own. And Chromium, in which tests/study opens the page to ask "what if", strace for the probe, rsync,
# by which a storage of Snakemake copies, and what makes a venv and compiles for Debian's Python.
# As root, on Debian 12; does nothing where all is installed.
# Debian has no PBS: of that only what it needs is installed, if CKPTBENCH_OPENPBS is the folder of a built one.
set -eu

packages="slurm-wlm slurmdbd munge mariadb-server
    gridengine-master gridengine-exec gridengine-client
    chromium chromium-driver strace rsync python3-venv python3-dev"
[ -z "${CKPTBENCH_OPENPBS:-}" ] || packages="$packages
    postgresql postgresql-contrib libpq5 libpython3.11 libhwloc15 libical3 libedit2 libcjson1 libexpat1
    libssl3 tcl8.6 tk8.6 iproute2 procps util-linux xz-utils"
policy=/usr/sbin/policy-rc.d

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

missing() {
    for package in $packages; do
        dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null |
            grep -qx installed || echo "$package"
    done
}

# While it is in place, the packages' own scripts start no service.
forbid_service_starts() {
    [ -e "$policy" ] && return
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
    trap 'exit 1' HUP INT TERM
}

[ -r /etc/debian_version ] && command -v apt-get >/dev/null ||
    fail "needs Debian's apt-get; on other systems install by hand: $(echo $packages)"
wanted=$(missing)
[ -n "$wanted" ] || exit 0
[ "$(id -u)" = 0 ] || fail "must be root to install packages; run: sudo $0"

forbid_service_starts
export DEBIAN_FRONTEND=noninteractive
apt-get update
if command -v debconf-set-selections >/dev/null; then
    # No cell is made at install time, and no mail is asked for.
    printf '%s\n' 'gridengine-master shared/gridenginemaster string localhost' \
        'gridengine-master shared/gridenginecell string default' \
        'gridengine-master shared/gridengineconfig boolean false' |
        sed 'p; s/^gridengine-master/gridengine-common/; p; s/^gridengine-common/gridengine-client/' |
        debconf-set-selections
fi
# shellcheck disable=SC2086  # one word for each package
apt-get install --yes --no-install-recommends $wanted
wanted=$(missing)
[ -z "$wanted" ] || fail "not installed after all: $(echo $wanted)"
