"""Shell programs that `machine` runs on machines. Parameters are passed as arguments and never put into the program."""

ABSENT_STATUS = 44
"""Exit status of `GET` for a file that does not exist."""

GET = f'[ -e "$1" ] || exit {ABSENT_STATUS}; exec cat -- "$1"'

# The new content of the file NAME is written to `.gpuaas.NAME.` and eight random characters beside it. Because of their
# fixed number, the pattern for one name never matches the temporary file of another name.
# A power cut leaves this file. A later write of NAME deletes it if it is older than any transfer can take: a younger
# one may be that of another writer. A removal deletes all of them.
DELETE_LEFTOVERS = """delete_leftovers() {
  for leftover in "${1%/*}/.gpuaas.${1##*/}".????????; do
    [ ! -e "$leftover" ] || find "$leftover" -maxdepth 0 -mmin +60 -delete 2>/dev/null || true
  done
}
"""
# Earlier releases wrote to `.gpuaas.WRITER.NAME`; WRITER has no dot.
DELETE_TEMPORARY = """delete_temporary() {
  rm -f -- "${1%/*}/.gpuaas.${1##*/}".????????
  for leftover in "${1%/*}"/.gpuaas.*."${1##*/}"; do
    writer=${leftover#"${1%/*}"/.gpuaas.} writer=${writer%."${1##*/}"}
    case $writer in *.*) ;; *) rm -f -- "$leftover" ;; esac
  done
}
"""
# Standard input ends early if the caller dies or the connection breaks, so the size is checked before the replacement.
PUT = (
    DELETE_LEFTOVERS
    + """set -eu
path=$1 mode=$2 owner=$3 size=$4
delete_leftovers "$path"
temporary=$(mktemp "$(dirname -- "$path")/.gpuaas.${path##*/}.XXXXXXXX")
trap 'rm -f -- "$temporary"' EXIT
cat > "$temporary"
[ "$(stat -c %s -- "$temporary")" = "$size" ] || { echo "only part of the content was received" >&2; exit 1; }
chown -- "$owner" "$temporary"
chmod -- "$mode" "$temporary"
look() { stat -c '%a %U:%G' -- "$1"; }
if [ -f "$path" ] && cmp -s -- "$temporary" "$path" && [ "$(look "$path")" = "$(look "$temporary")" ]; then
  echo same
else
  sync -- "$temporary"
  mv -fT -- "$temporary" "$path"
  echo changed
fi
"""
)

# Arguments: path, mode, owner and size of each file; standard input has their contents one after the other. Nothing is
# replaced before everything was received. Prints the position of each file that changed.
PUT_ALL = (
    DELETE_LEFTOVERS
    + """set -euo pipefail
paths=() temporaries=() sizes=() changed=()
trap 'rm -f -- "${temporaries[@]}"' EXIT
while [ $# -gt 0 ]; do
  path=$1 mode=$2 owner=$3 size=$4; shift 4
  folder=${path%/*}/
  [ -d "$folder" ] || (umask 022; mkdir -p -- "$folder")
  delete_leftovers "$path"
  temporary=$(mktemp "$folder.gpuaas.${path##*/}.XXXXXXXX")
  paths+=("$path") temporaries+=("$temporary") sizes+=("$size")
  head -c "$size" | install -m "$mode" -o "${owner%:*}" -g "${owner#*:}" -- /dev/stdin "$temporary"
done
[ "$(stat -c %s -- "${temporaries[@]}")" = "$(printf '%s\\n' "${sizes[@]}")" ] || {
  echo "only part of the content was received" >&2; exit 1; }
look() { stat -c '%a %U:%G' -- "$1"; }
for at in "${!paths[@]}"; do
  path=${paths[at]} temporary=${temporaries[at]}
  [ -f "$path" ] && cmp -s -- "$temporary" "$path" && [ "$(look "$path")" = "$(look "$temporary")" ] ||
    changed+=("$at")
done
[ ${#changed[@]} -gt 0 ] || exit 0
new=(); for at in "${changed[@]}"; do new+=("${temporaries[at]}"); done
sync -- "${new[@]}"
for at in "${changed[@]}"; do
  mv -fT -- "${temporaries[at]}" "${paths[at]}"
  echo "$at"
done
"""
)
# One line for each path: `absent`, or `present` and the content in base64.
GET_ALL = """set -eu
for path in "$@"; do
  if [ -e "$path" ]; then content=$(base64 -w0 -- "$path"); echo "present $content"; else echo absent; fi
done
"""

# Arguments: `stop` or `continue` after a failure; then, for each command, the number of its words, the size of its
# input and its words. For each command, prints its exit status, the sizes of its output and its errors, and then both.
ALL = """set -u
after=$1; shift
results=$(mktemp -d -p /run 2>/dev/null || mktemp -d) || exit 1
trap 'rm -rf -- "$results"' EXIT
while [ $# -gt 0 ]; do
  words=$1 size=$2; shift 2
  head -c "$size" > "$results/in"
  [ "$(stat -c %s "$results/in")" = "$size" ] || { echo "only part of the input was received" >&2; exit 1; }
  "${@:1:$words}" < "$results/in" > "$results/out" 2> "$results/errors"
  status=$?
  echo "$status" $(stat -c %s "$results/out" "$results/errors")
  cat "$results/out" "$results/errors"
  [ "$status" = 0 ] || [ "$after" = continue ] || exit 0
  shift "$words"
done
"""

# When the connection breaks, standard input is closed; the `cat` in the background then ends and stops `tail`.
FOLLOW = """exec 3<&0 </dev/null
{ cat <&3; kill $$; } >/dev/null 2>&1 &
exec 3<&- tail -n "$2" -F -- "$1" 2>/dev/null
"""

# A command must end with the caller that started it: if the connection breaks or the caller stops, standard input ends.
# The first bytes of standard input are the input of the command. A reader then waits for the end of standard input,
# which comes only after the command has ended, unless the caller has gone: it then stops all processes of the unit or,
# without systemd, of the session. The reader has no output of its own, which would keep the connection open.
WATCHED = """unit=$1 size=$2; shift 2
exec 3<&0
exec 4< <(exec 2>/dev/null
  head -c "$size" <&3
  exec >/dev/null
  cat <&3
  if [ -n "$unit" ]; then systemctl stop --no-block "$unit"
  else trap '' TERM; pkill -TERM -s 0; sleep 5; pkill -KILL -s 0; fi)
reader=$!
"$@" <&4 3<&- 4<&-
status=$?
kill "$reader" 2>/dev/null
exit "$status"
"""
# A scope has all processes of the command, also those that leave its session, as dpkg does. Later callers stop it by
# its name. Without systemd, a session of its own is the nearest thing.
IN_UNIT = """watched=$1 unit=$2 size=$3; shift 3
if [ -d /run/systemd/system ] && [ -n "$unit" ] && [ "$(id -u)" = 0 ]; then
  exec systemd-run --scope --quiet --collect --unit="$unit" -p TimeoutStopSec=5 -- \\
    bash -c "$watched" watched "$unit" "$size" "$@"
fi
exec setsid --wait bash -c "$watched" watched "" "$size" "$@"
"""
# Returns after all processes of the units have ended.
STOP_UNITS = '[ ! -d /run/systemd/system ] || systemctl stop -- "$@" 2>/dev/null || true'

# Arguments: a folder for notes, the unit and the cause. The note has the cause and the run of the unit before the
# restart, so it shows after any interruption whether the restart has happened. `start` then waits for one under way.
RESTART_ONCE = """set -eu
notes=$1 unit=$2 cause=$3
run=$(systemctl show --property=InvocationID --value -- "$unit")
mkdir -p -m 0700 -- "$notes"
if [ "$(sed -n 1p -- "$notes/$unit" 2>/dev/null)" = "$cause" ]; then
  [ "$(sed -n 2p -- "$notes/$unit")" = "$run" ] || exec systemctl start -- "$unit"
else
  printf '%s\\n%s\\n' "$cause" "$run" > "$notes/$unit.new"
  mv -fT -- "$notes/$unit.new" "$notes/$unit"
fi
exec systemctl restart -- "$unit"
"""

AS_USER = (
    'HOME=$(getent passwd "$(id -un)" | cut -d: -f6); USER=$(id -un); LOGNAME=$USER; export HOME USER LOGNAME; '
    'cd "$HOME" 2>/dev/null || cd /; exec "$@"'
)


def grouped(script: str) -> str:
    """Wrap a script so that bash reads all of it first: a command of the script cannot read the rest as its input."""
    return f"{{\n{script}\n}} </dev/null\n"


def unprivileged(argv: tuple[str, ...], timeout_s: float) -> list[str]:
    """Return the command that runs `argv` as the user who logged in. The machine enforces the time limit."""
    return ["timeout", "--kill-after=5", f"{timeout_s:g}", *argv]


def as_root(argv: tuple[str, ...], login_user: str, as_user: str | None, timeout_s: float) -> list[str]:
    """Return the command that runs `argv` as root, or as `as_user`, in an SSH session of `login_user`.

    The machine enforces the time limit, so the command also ends if the machine loses the connection unnoticed."""
    command = ["timeout", "--kill-after=5", f"{timeout_s:g}", *as_other(argv, as_user)]
    return command if login_user == "root" else ["sudo", "-n", "--", *command]


def as_other(argv: tuple[str, ...], as_user: str | None) -> tuple[str, ...]:
    """Return the command that runs `argv` as this user, if there is one."""
    return argv if as_user is None else ("runuser", "-u", as_user, "--", "sh", "-c", AS_USER, "sh", *argv)


def watched(argv: list[str], unit: str, input_bytes: int) -> list[str]:
    """Return the command that runs `argv` in this unit, and stops it when the caller has gone."""
    runs_as = argv[:3] if argv[:2] == ["sudo", "-n"] else []
    return [*runs_as, "bash", "-c", IN_UNIT, "unit", WATCHED, unit, str(input_bytes), *argv[len(runs_as) :]]
