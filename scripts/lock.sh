#!/usr/bin/env bash
# Lock environments: write the versions that satisfy the requirements in envs/NAME.in to envs/NAME.txt.
#
#     scripts/lock.sh [OPTION...] [NAME...]     without a name: lock all environments
#
# A lock keeps the versions that it has, unless `--upgrade` is given. Every option is passed on to `uv pip compile`.
# Locks are for Linux x86-64 with glibc 2.28 or newer, on whatever machine this runs. They hold versions, never sources.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv="${UV:-.venv/bin/uv}"
draft="$(mktemp)"
trap 'rm -f "$draft"' EXIT

# PyPI has the CUDA build of PyTorch, which needs gigabytes of libraries, so CPU locks take it from another source.
# The function runs in a subshell, so that its changes of variables do not reach the next lock.
choose_source_and_lock() (
    local name="$1"
    shift
    if [[ "$name" == *-cuda ]]; then
        unset UV_FIND_LINKS UV_TORCH_BACKEND
    elif [[ -n "${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}" ]]; then
        export UV_FIND_LINKS="${UV_FIND_LINKS:-$PIP_FIND_LINKS}"
    else
        export UV_TORCH_BACKEND=cpu
    fi
    lock "$name" "$@"
)

lock() {
    local name="$1"
    shift
    # The lock has torch without the label of its build. uv would keep exactly that version, which is the CUDA build.
    : > "$draft"
    if [[ -e "envs/$name.txt" ]]; then
        sed '/^torch==/d' "envs/$name.txt" > "$draft"
    fi
    "$uv" pip compile --quiet --no-header --no-annotate \
        --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
        --build-constraints envs/build-constraints.txt \
        "$@" --output-file "$draft" "envs/$name.in" > /dev/null
    sed 's/+cpu$//' "$draft" > "envs/$name.txt"
}

main() {
    local argument name
    local -a options=() names=()
    for argument in "$@"; do
        case "$argument" in
            -*) options+=("$argument") ;;
            *) names+=("$argument") ;;
        esac
    done
    if ((${#names[@]} == 0)); then
        for argument in envs/*.in; do
            names+=("$(basename "$argument" .in)")
        done
    fi
    for name in "${names[@]}"; do
        echo "envs/$name.txt"
        choose_source_and_lock "$name" "${options[@]}"
    done
}

main "$@"
