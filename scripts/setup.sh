#!/usr/bin/env bash
# Creates the virtual environment $1 and installs everything that faultlab needs on a CPU.
# Safe to repeat: what is already there is kept.
set -euo pipefail

venv=${1:?usage: scripts/setup.sh VENV}
cd "$(dirname "$0")/.."

# A name on PATH is not enough: version managers leave names there that fail when called.
find_python() {
    local candidate
    for candidate in python3.11 python3.12; do
        if "$candidate" -c 'import venv, ensurepip' >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    echo "setup: found neither python3.11 nor python3.12 with the venv module." >&2
    echo "setup: install one (Debian and Ubuntu: apt-get install python3.11-venv) and repeat." >&2
    return 1
}

if [[ ! -x $venv/bin/python ]]; then
    python=$(find_python)
    echo "setup: creating $venv with $("$python" --version)"
    "$python" -m venv "$venv"
fi

install() {
    # pip would warn about the requirements of vLLM that are absent on purpose.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-warn-conflicts "$@"
}

echo "setup: installing torch (a few hundred megabytes the first time)"
install torch==2.13.0
echo "setup: installing vLLM without the CUDA packages it declares, and what it imports on a CPU"
install --no-deps vllm==0.33.0
install --no-deps -r requirements/cpu.txt
echo "setup: installing faultlab, its test tools and what builds its documents"
# The constraints keep a resolver from moving anything that was pinned above.
install --constraint requirements/cpu.txt --editable '.[test,docs,ray]'
