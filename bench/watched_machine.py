"""One machine of the lab in place of the machines of many clusters: it has an address for each of them.

Its sshd is the real one. For the observer it runs a program that prints a recorded line as often as the watch of an
idle cluster prints one: 200 watches with their Slurm commands would need more than this host has."""

import contextlib
import ipaddress
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LAB, MACHINE = "benchclusters", "gpu-1"
FIRST_HOST = 30
SIGN_OF_LIFE_S = 6
"""As in the app's watch program: an idle cluster prints a line as often."""

# Like the watch program, this one ends when its standard input ends.
_SET_UP = r"""
user=$1
id "$user" >/dev/null 2>&1 || useradd --no-create-home --home-dir / --shell /bin/sh "$user"
cat > /etc/ssh/sshd_config.d/bench.conf <<EOF
MaxStartups 100
TrustedUserCAKeys /etc/ssh/bench-authority.pub
Match User $user
  AuthorizedPrincipalsFile /etc/ssh/bench-principals
  ForceCommand /usr/local/bin/bench-watch
EOF
cat > /usr/local/bin/bench-watch <<'EOF'
#!/bin/sh
case $SSH_ORIGINAL_COMMAND in *" hostname -s") exec hostname -s ;; esac
exec 3<&0 </dev/null
{ cat <&3; kill $$; } >/dev/null 2>&1 &
exec 3<&-
while cat /etc/bench-line 2>/dev/null; do sleep SECONDS >/dev/null 2>&1 & wait $!; done
EOF
sed -i "s/SECONDS/$2/" /usr/local/bin/bench-watch
chmod 755 /usr/local/bin/bench-watch
systemctl reload ssh
"""


class WatchedMachine:
    """The machine, while it runs."""

    def __init__(self, count: int) -> None:
        own = ipaddress.ip_address(_lab("address", MACHINE).strip())
        network = ipaddress.ip_network(f"{own}/24", strict=False)
        self.addresses = [str(network[FIRST_HOST + number]) for number in range(count)]
        self.host_key = self._run("cat", "/etc/ssh/ssh_host_ed25519_key.pub").strip()
        commands = [f"address replace {address}/24 dev eth0\n" for address in self.addresses]
        self._run("ip", "-batch", "-", input="".join(commands))

    def serve(self, authority: str, user: str, principals: list[str], line: str) -> None:
        """Let the holders of the principals log in as this user, and print the line to them."""
        files = {"/etc/ssh/bench-authority.pub": authority, "/etc/bench-line": line}
        files["/etc/ssh/bench-principals"] = "\n".join(principals)
        for path, content in files.items():
            self._run("sh", "-c", 'cat > "$0"', path, input=f"{content}\n")
        self._run("sh", "-euc", _SET_UP, "set-up", user, str(SIGN_OF_LIFE_S))

    def connections(self) -> int:
        """Return how many SSH connections are open."""
        return len(self._run("ss", "-Htn", "state", "established", "sport = :22").splitlines())

    def _run(self, *argv: str, input: str = "") -> str:
        return _lab("exec", MACHINE, "--", *argv, input=input)


@contextlib.contextmanager
def started(count: int) -> Iterator[WatchedMachine]:
    _lab("image")
    _lab("down", "--purge")
    try:
        _lab("up", "--nodes", "1")
        yield WatchedMachine(count)
    finally:
        _lab("down", "--purge")


def _lab(command: str, *arguments: str, input: str = "") -> str:
    argv = [str(Path(sys.executable).with_name("gpuaas-lab")), command, "--lab", LAB, *arguments]
    ran = subprocess.run(argv, input=input, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"bench: gpuaas-lab {command} failed:\n{ran.stdout}{ran.stderr}")
    return ran.stdout
