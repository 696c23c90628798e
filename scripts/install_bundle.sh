#!/usr/bin/env bash
# Installs faultlab from this bundle into the environment of $PYTHON (default: python3).
# Needs no network, and changes nothing that is installed there: torch and vLLM stay as they are.
set -euo pipefail

cd "$(dirname "$0")"
python=${PYTHON:-python3}

fail() {
    echo "install: $1" >&2
    exit 1
}

sha256sum --check --quiet --strict SHA256SUMS \
    || fail "the files named above are not those of the bundle; copy it again"
unknown=$(comm -13 <(sed 's/^[^ ]*  //' SHA256SUMS | sort) \
    <(find . -type f ! -name SHA256SUMS ! -path '*/__pycache__/*' | sort))
[[ -z $unknown ]] || fail "files that do not belong to the bundle, remove them: $unknown"

# What is there stays there: an installation that would have to move it fails and says why.
installed=$(mktemp)
trap 'rm -f "$installed"' EXIT
"$python" -m pip list --format=freeze --disable-pip-version-check | grep -vi '^faultlab==' \
    >"$installed" || true
"$python" -m pip install --disable-pip-version-check --no-index --find-links wheels \
    --only-binary :all: --constraint "$installed" faultlab pytest

if [[ ${WITH_MORI:-} ]]; then
    "$python" -m pip install --disable-pip-version-check --no-index --find-links wheels \
        --no-deps amd-mori
fi
echo "install: done; next: $python -m faults.cli doctor --hardware, then see source/docs/hardware.md"
