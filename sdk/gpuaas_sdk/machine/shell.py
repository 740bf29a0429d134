"""Shell programs that `machine` runs on machines. Parameters are passed as arguments and never put into the program."""

ABSENT_STATUS = 44
"""Exit status of `GET` for a file that does not exist."""

GET = f'[ -e "$1" ] || exit {ABSENT_STATUS}; exec cat -- "$1"'

# Standard input ends early if the caller dies or the connection breaks, so the size is checked before the replacement.
PUT = """set -eu
path=$1 mode=$2 owner=$3 size=$4
temporary=$(mktemp "$(dirname -- "$path")/.gpuaas.XXXXXXXX")
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

# When the connection breaks, standard input is closed; the `cat` in the background then ends and stops `tail`.
FOLLOW = """exec 3<&0 </dev/null
{ cat <&3; kill $$; } >/dev/null 2>&1 &
exec 3<&- tail -n "$2" -F -- "$1" 2>/dev/null
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

    The machine enforces the time limit, so the command also ends if the caller dies."""
    command = list(argv)
    if as_user is not None:
        command = ["runuser", "-u", as_user, "--", "sh", "-c", AS_USER, "sh", *command]
    command = ["timeout", "--kill-after=5", f"{timeout_s:g}", *command]
    return command if login_user == "root" else ["sudo", "-n", "--", *command]
