#!/usr/bin/env bash
# Makes the virtual environment VENV, which sees all that PYTHON's has and changes nothing of it, and
# installs into it: scripts/overlay_venv.sh PYTHON VENV ARGUMENTS-OF-PIP-INSTALL...
#
# A newer version of what is there hides the older one in VENV alone. Only what drives the GPUs and the
# NIC may not be hidden: an installation that would do that fails and names it.
set -euo pipefail

python=${1:?usage: overlay_venv.sh PYTHON VENV ARGUMENTS...}
venv=${2:?usage: overlay_venv.sh PYTHON VENV ARGUMENTS...}
shift 2

pip() {
    "$python" -m pip --python "$venv/bin/python" --disable-pip-version-check "$@"
}

# Not --system-site-packages, which shows the base's packages if PYTHON is of an environment itself,
# and without pip, because distributions leave out what brings it.
"$python" -m venv --without-pip "$venv"
own=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" -E -c '
import sys
for place in sys.path:
    if place.endswith(("site-packages", "dist-packages")):
        print(f"import site; site.addsitedir({place!r})")
' >"$own/image.pth"

kept=$(mktemp)
trap 'rm -f "$kept"' EXIT
pip list --format=freeze \
    | { grep -Ei '^(torch|torchvision|torchaudio|triton|pytorch-triton.*|vllm|numpy|amd-mori|mori)==' \
        || true; } >"$kept"
pip install --constraint "$kept" "$@"
