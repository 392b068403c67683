# Sourced by the shell scripts here: where things are, and which Python has which torch.
# shellcheck shell=bash

LOWTIDE_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

# The scripts change folders; what the user named is meant from where they were called.
if [[ -n "${LOWTIDE_VENV:-}" && "$LOWTIDE_VENV" != /* ]]; then
  export LOWTIDE_VENV="$PWD/$LOWTIDE_VENV"
fi

# fail TEXT...: one line on stderr, exit 1.
fail() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# venv_of 2.15|2.11: the virtual environment that has (or will have) this torch.
venv_of() {
  if [[ -n "${LOWTIDE_VENV:-}" ]]; then
    echo "$LOWTIDE_VENV"
  elif [[ "$1" == 2.15 ]]; then
    echo "$LOWTIDE_ROOT/.venv"
  else
    echo "$LOWTIDE_ROOT/.venv-$1"
  fi
}

# configure PRESET TORCH [cmake arguments...]: configures build/PRESET (build/PRESET-2.11 for the
# second torch) and prints the folder. CMake's own words appear only when it fails.
configure() {
  local preset="$1" torch="$2" folder log
  shift 2
  folder="$LOWTIDE_ROOT/build/$preset"
  [[ "$torch" == 2.15 ]] || folder+="-$torch"
  mkdir -p "$folder"
  log="$folder/configure.log"
  if ! (cd "$LOWTIDE_ROOT" && cmake --preset "$preset" -B "$folder" \
    -DLOWTIDE_PYTHON="$(venv_of "$torch")/bin/python" "$@") >"$log" 2>&1; then
    cat "$log" >&2
    fail "cmake could not configure the $preset preset"
  fi
  echo "$folder"
}
