#!/usr/bin/env bash
# Installs faultlab from this bundle into a virtual environment beside it, VENV (default: ./venv),
# which sees what $PYTHON (default: python3) has. Needs no network and changes nothing that is there.
set -euo pipefail

cd "$(dirname "$0")"
python=${PYTHON:-python3}
venv=${VENV:-./venv}

fail() {
    echo "install: $1" >&2
    exit 1
}

sha256sum --check --quiet --strict SHA256SUMS \
    || fail "the files named above are not those of the bundle; copy it again"
unknown=$(comm -13 <(sed 's/^[^ ]*  //' SHA256SUMS | sort) \
    <(find . -type f ! -name SHA256SUMS ! -path './venv/*' ! -path '*/__pycache__/*' | sort))
[[ -z $unknown ]] || fail "files that do not belong to the bundle, remove them: $unknown"

mori=()
[[ ${WITH_MORI:-} ]] && mori=(amd-mori)
source/scripts/overlay_venv.sh "$python" "$venv" \
    --no-index --find-links wheels --only-binary :all: faultlab pytest "${mori[@]}"
echo "install: done; next: $venv/bin/faultlab doctor --hardware, then source/docs/hardware.md"
