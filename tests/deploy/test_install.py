"""`deploy/install`: takes the archive for the machine from a release, or says why it does not."""

import functools
import hashlib
import http.server
import os
import pathlib
import shutil
import stat
import subprocess
import tarfile
import tempfile
import threading
import unittest

from files import DEPLOY, SECONDS

PROGRAMS = ("fanout-worker", "ingest", "pushctl")
NEXT = "standalone --demo"


# What is under this path is redirected to the same server.
MOVED = "/moved"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if not self.path.startswith(f"{MOVED}/"):
            return super().do_GET()
        self.send_response(302)
        self.send_header("Location", f"http://{self.headers['Host']}{self.path.removeprefix(MOVED)}")
        self.end_headers()

    def log_message(self, *_):
        pass


def serve(case, folder):
    """The address of this folder, until the test ends."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    case.addCleanup(server.server_close)
    case.addCleanup(server.shutdown)
    return f"http://127.0.0.1:{server.server_port}"


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


class Install(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="push-install-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.release = self.folder / "release"
        self.release.mkdir()
        self.url = serve(self, self.release)
        self.home = self.folder / "home"
        self.home.mkdir()
        for machine in ("linux-amd64", "linux-arm64", "macos-amd64", "macos-arm64"):
            self.publish(machine)

    def publish(self, machine, version="0.1.0", programs='echo "$(basename $0) 0.1.0"; env | sed "s/PUSH_/warning: &/" >&2'):
        """Adds an archive whose programs say which machine they are for."""
        name = f"push-{version}-{machine}"
        for program in PROGRAMS:
            write_program(self.folder / name / "bin" / program, f"# for {machine}\n{programs}")
        archive = self.release / f"{name}.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(self.folder / name, name)
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        sums = self.release / "SHA256SUMS"
        lines = sums.read_text().splitlines(keepends=True) if sums.exists() else []
        lines = [line for line in lines if archive.name not in line]
        sums.write_text("".join(lines) + f"{digest}  {archive.name}\n")

    def install(self, *arguments, system="Linux", processor="x86_64", **environment):
        """Runs it on a machine whose `uname` says this."""
        write_program(self.folder / "machine" / "uname",
                      f"case $1 in -s) echo {system} ;; -m) echo {processor} ;; esac")
        environment = {"HOME": str(self.home), "PUSH_RELEASES": self.url,
                       "PATH": f"{self.folder / 'machine'}:{os.environ['PATH']}", **environment}
        return subprocess.run(["/bin/sh", DEPLOY / "install", *arguments], capture_output=True, text=True,
                              env=environment, cwd=self.folder, timeout=SECONDS)

    def assert_installed(self, done, folder, machine):
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(path.name for path in folder.iterdir()), list(PROGRAMS))
        for path in folder.iterdir():
            self.assertIn(f"# for {machine}\n", path.read_text())
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o755)
        self.assertIn(NEXT, done.stdout)
        self.assertNotIn("warning", done.stderr)

    def assert_refused(self, done, why):
        """It says why, and leaves nothing."""
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(why, done.stderr)
        self.assertNotIn(NEXT, done.stdout)
        left = [path for path in self.home.rglob("*") if not path.is_dir() or "install" in path.name]
        self.assertEqual(left, [])

    def test_each_machine_gets_the_programs_that_are_for_it(self):
        machines = {("Linux", "x86_64"): "linux-amd64", ("Linux", "aarch64"): "linux-arm64",
                    ("Darwin", "x86_64"): "macos-amd64", ("Darwin", "arm64"): "macos-arm64"}
        # Each replaces what the one before installed.
        for (system, processor), machine in machines.items():
            with self.subTest(machine):
                done = self.install(system=system, processor=processor)
                self.assert_installed(done, self.home / ".local" / "bin", machine)
                self.assertIn("is not in your PATH", done.stderr)

    def test_it_installs_where_it_is_told_and_names_the_program_as_the_shell_finds_it(self):
        bin = self.folder / "a prefix" / "bin"
        done = self.install("--prefix", "a prefix",
                            PATH=f"{self.folder / 'machine'}:{os.environ['PATH']}:{bin}")
        self.assert_installed(done, bin, "linux-amd64")
        self.assertIn(f"    pushctl {NEXT}\n", done.stdout)
        self.assertEqual(list(self.home.iterdir()), [])

    def only_with(self, downloader):
        """The path of a machine that has this program to download with, and no other."""
        if shutil.which(downloader) is None:
            self.skipTest(f"{downloader} is not installed")
        tools = self.folder / f"machine-with-{downloader}"
        tools.mkdir()
        for tool in (downloader, "sha256sum", "mkdir", "mktemp", "rm", "grep", "wc", "cut", "gzip", "tar", "mv",
                     "head", "cat", "basename", "env", "sed"):
            (tools / tool).symlink_to(shutil.which(tool))
        return f"{self.folder / 'machine'}:{tools}"

    def test_wget_is_as_good_as_curl(self):
        done = self.install(PATH=self.only_with("wget"))
        self.assert_installed(done, self.home / ".local" / "bin", "linux-amd64")

    def test_a_redirect_to_an_unencrypted_address_is_not_followed(self):
        for downloader in ("curl", "wget"):
            with self.subTest(downloader):
                moved = f"{self.url}{MOVED}"
                self.assert_refused(self.install(PUSH_RELEASES=moved, PATH=self.only_with(downloader)),
                                    f"cannot download {moved}/SHA256SUMS")

    def test_an_archive_with_another_checksum_is_refused(self):
        with (self.release / "push-0.1.0-linux-amd64.tar.gz").open("ab") as archive:
            archive.write(b"more")
        self.assert_refused(self.install(), "does not have the checksum in SHA256SUMS")

    def test_a_system_or_processor_without_an_archive_is_named(self):
        self.assert_refused(self.install(system="FreeBSD"), "this is FreeBSD")
        self.assert_refused(self.install(processor="riscv64"), "this is riscv64")
        (self.release / "SHA256SUMS").write_text("")
        self.assert_refused(self.install(), "push-VERSION-linux-amd64.tar.gz")

    def test_a_release_that_is_not_there_or_not_one_is_an_error(self):
        self.publish("linux-amd64", version="0.2.0")
        self.assert_refused(self.install(), "more than one version")
        (self.release / "push-0.1.0-linux-arm64.tar.gz").unlink()
        self.assert_refused(self.install(processor="aarch64"),
                            f"cannot download {self.url}/push-0.1.0-linux-arm64.tar.gz")
        self.assert_refused(self.install(PUSH_RELEASES=f"{self.url}/none"),
                            f"cannot download {self.url}/none/SHA256SUMS")

    def test_a_release_that_others_could_exchange_on_its_way_is_refused(self):
        self.assert_refused(self.install(PUSH_RELEASES=""), "PUSH_RELEASES is not set")
        for url in ("http://releases.example", "ftp://releases.example", "http://127.0.0.1.example/"):
            self.assert_refused(self.install(PUSH_RELEASES=url), "is not an address with https")

    def test_programs_that_do_not_run_here_replace_none_that_do(self):
        bin = self.home / ".local" / "bin"
        self.assertEqual(self.install().returncode, 0)
        self.publish("linux-amd64", programs="exit 126")
        done = self.install()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("does not run on this machine", done.stderr)
        self.assertEqual(sorted(path.name for path in bin.iterdir()), list(PROGRAMS))
        self.assertNotIn("exit 126", (bin / "pushctl").read_text())

    def test_a_script_that_was_cut_off_on_its_way_does_nothing(self):
        whole = (DEPLOY / "install").read_text()
        cut = self.folder / "cut"
        for end in range(0, len(whole) - len('main "$@"\n'), 97):
            cut.write_text(whole[:end])
            subprocess.run(["/bin/sh", cut], capture_output=True, cwd=self.folder, timeout=SECONDS,
                           env={"HOME": str(self.home), "PUSH_RELEASES": self.url,
                                "PATH": os.environ["PATH"]})
        self.assertEqual(list(self.home.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
