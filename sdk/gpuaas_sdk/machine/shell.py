"""Shell programs that `machine` sends to hosts. They get their parameters as arguments, never as program text."""

ABSENT_STATUS = 44
"""Exit status of `GET` for a file that does not exist."""

GET = f'[ -e "$1" ] || exit {ABSENT_STATUS}; exec cat -- "$1"'

# Input ends early when the caller dies or the connection breaks, so the size is checked before the file is replaced.
PUT = """set -eu
path=$1 mode=$2 owner=$3 size=$4
temporary=$(mktemp "$(dirname -- "$path")/.gpuaas.XXXXXXXX")
trap 'rm -f -- "$temporary"' EXIT
cat > "$temporary"
[ "$(stat -c %s -- "$temporary")" = "$size" ] || { echo "only a part of the content arrived" >&2; exit 1; }
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

# Standard input closes together with the connection, and the background reader then stops `tail`.
FOLLOW = """exec 3<&0 </dev/null
{ cat <&3; kill $$; } >/dev/null 2>&1 &
exec 3<&- tail -n "$2" -F -- "$1" 2>/dev/null
"""

AS_USER = (
    'HOME=$(getent passwd "$(id -un)" | cut -d: -f6); USER=$(id -un); LOGNAME=$USER; export HOME USER LOGNAME; '
    'cd "$HOME" 2>/dev/null || cd /; exec "$@"'
)


def grouped(script: str) -> str:
    """Wrap a script so that bash reads all of it before the first command runs and no command can read the rest."""
    return f"{{\n{script}\n}} </dev/null\n"


def as_root(argv: tuple[str, ...], login_user: str, as_user: str | None, timeout_s: float) -> list[str]:
    """Return the command that runs `argv` as root, or as `as_user`, from a session of `login_user`.

    The time limit is enforced on the machine, so a caller that dies leaves nothing running."""
    command = list(argv)
    if as_user is not None:
        command = ["runuser", "-u", as_user, "--", "sh", "-c", AS_USER, "sh", *command]
    command = ["timeout", "--kill-after=5", f"{timeout_s:g}", *command]
    return command if login_user == "root" else ["sudo", "-n", "--", *command]
