#!/bin/sh
# Prints the path of the Python to use: the wish in $1 if given, else 3.11, else 3.13, else 3.12, from PATH and pyenv.
# "--host 7" asks for a Python 3.7 and nothing else: what a training host has (tests/hosts).
# A name on PATH may be a pyenv shim that refuses to run, so a candidate counts only if it starts.
set -u

usable() {  # interpreter, wanted minor versions: prints the real executable if it starts and fits
    "$1" - "$2" 2>/dev/null <<'PY'
import sys
if sys.version_info[0] == 3 and str(sys.version_info[1]) in sys.argv[1].split(","):
    print(sys.executable)
else:
    sys.exit(1)
PY
}

pyenv_root=${PYENV_ROOT:-}
[ -n "$pyenv_root" ] || pyenv_root=$(pyenv root 2>/dev/null) || pyenv_root=$HOME/.pyenv

if [ "${1:-}" = --host ]; then
    for candidate in "python3.$2" "$pyenv_root"/versions/3."$2".*/bin/python3; do
        usable "$candidate" "$2" && exit 0
    done
    echo "No Python 3.$2 found on PATH or under pyenv" >&2
    exit 1
fi

if [ -n "${1:-}" ]; then
    for candidate in "$1" "$pyenv_root"/versions/"${1#python}".*/bin/python3; do  # python3.12 may be a shim
        usable "$candidate" 11,12,13 && exit 0
    done
    echo "PYTHON=$1 does not start or is not Python 3.11, 3.12 or 3.13" >&2
    exit 1
fi

for minor in 11 13 12; do
    for candidate in "python3.$minor" "$pyenv_root"/versions/3."$minor".*/bin/python3 python3; do
        found=$(usable "$candidate" "$minor") || continue
        [ "$minor" = 11 ] || echo "Python 3.$minor found, no 3.11: Estimator mode (tf.estimator) will be missing" >&2
        echo "$found"
        exit 0
    done
done
echo "No Python 3.11, 3.12 or 3.13 found: install one (3.11 is best, e.g. 'apt install python3.11 python3.11-venv' or 'pyenv install 3.11')" >&2
exit 1
