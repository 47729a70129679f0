"""Where the files of deploy/ are, and how they are read as the tools read them."""

import pathlib
import shutil
import subprocess
import tempfile

import yaml

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"

# How long a tool may take.
SECONDS = 60


def run(*command, **more):
    """The standard output of a command, which must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, **more)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def kustomize():
    """The command that builds a kustomization, or None."""
    for command in (["kubectl", "kustomize"], ["kustomize", "build"]):
        if shutil.which(command[0]) is not None:
            return command
    return None


def documents(text):
    """The objects of a YAML stream."""
    return [each for each in yaml.safe_load_all(text) if each]


def copy_of_deploy(case):
    """A copy of deploy/ that ends with the test, for scripts that write."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="push-deploy-"))
    case.addCleanup(shutil.rmtree, folder)
    ignored = shutil.ignore_patterns(".env", "secrets", "backups")
    return pathlib.Path(shutil.copytree(DEPLOY, folder / "deploy", ignore=ignored))
