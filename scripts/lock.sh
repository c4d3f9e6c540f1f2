#!/usr/bin/env bash
# Lock environments: write the versions that satisfy the requirements in envs/NAME.in to envs/NAME.txt, each with the
# SHA-256 of the files that may be installed for it.
#
#     scripts/lock.sh [OPTION...] [NAME...]     without a name: lock all environments
#
# A lock keeps the versions that it has, unless `--upgrade` is given. Every option is passed on to `uv pip compile`.
# Locks are for Linux x86-64 with glibc 2.28 or newer, on whatever machine this runs. They hold versions, never sources.
# A line `# python: 3.12` in NAME.in says for which Python a lock is. Without it, it is for every one from 3.11 on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv="${UV:-.venv/bin/uv}"
draft="$(mktemp)"
cuda_builds="$(mktemp)"
trap 'rm -f "$draft" "$cuda_builds"' EXIT

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
    local -a target
    # The lock has torch without the label of its build. uv would keep exactly that version, which is the CUDA build.
    : > "$draft"
    if [[ -e "envs/$name.txt" ]]; then
        awk '/^[^ ]/ { is_torch = /^torch==/ } !is_torch' "envs/$name.txt" > "$draft"
    fi
    local python
    python="$(sed -n 's/^# python: //p' "envs/$name.in")"
    if [[ -n "$python" ]]; then
        target=(--python-version "$python" --python-platform x86_64-manylinux_2_28)
    else
        target=(--python-version 3.11 --universal)
    fi
    resolve "$@" --build-constraints envs/build-constraints.txt --output-file "$draft" "envs/$name.in" > /dev/null
    list_cuda_builds > "$cuda_builds"
    # pyproject.toml has the platform of universal locks, which uv repeats in each line.
    {
        [[ -z "$python" ]] || echo "# python: $python"
        sed -e "/^torch==.*+cpu /r $cuda_builds" -e 's/^\(torch==.*\)+cpu /\1 /' \
            -e "s/ and platform_machine == 'x86_64'.*'linux'//" -e "s/ ; platform_machine == 'x86_64'.*'linux'//" "$draft"
    } > "envs/$name.txt"
}

# Needs the array `target`.
resolve() {
    "$uv" pip compile --quiet --no-header --no-annotate --generate-hashes "${target[@]}" "$@"
}

# The version in the lock is that of the CPU build and of PyPI's build, so the lock has the hashes of both.
list_cuda_builds() (
    unset UV_FIND_LINKS UV_TORCH_BACKEND
    sed -n 's/^\(torch==.*\)+cpu .*/\1/p' "$draft" | resolve --no-deps - | sed -n 's/^\( *--hash=[^ ]*\).*/\1 \\/p'
)

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
