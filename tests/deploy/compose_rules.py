"""What every service of the compose stack keeps to."""

import re

# The image that is built from this repository.
BUILT = "push-message-service"

# A tag with a minor version at least: `4.2-alpine`, `v3.13.3`.
PINNED = re.compile(r".+:v?\d+\.\d+([.-].*)?$")


def faults(services):
    """What is wrong with services as `docker compose config` or the file shows them."""
    found = []
    for name, service in services.items():
        found += [f"{name}: {fault}" for fault in faults_of(service)]
    return found


def faults_of(service):
    """What is wrong with one service."""
    limits = service.get("ulimits", {}).get("nofile", {})
    hard = re.sub(r"\$\{\w+:-(\d+)\}", r"\1", str(limits.get("hard", 0)))
    if not 65536 <= int(hard) <= 1048576:
        yield "no limit of open files between 65536 and 1048576"
    if not service.get("mem_limit"):
        yield "no limit of memory"
    if service.get("read_only") is not True:
        yield "its file system can be written"
    if service.get("cap_drop") != ["ALL"]:
        yield "it keeps capabilities"
    if "no-new-privileges:true" not in service.get("security_opt", []):
        yield "it may gain privileges"
    if "max-size" not in service.get("logging", {}).get("options", {}):
        yield "its log has no bound"
    yield from faults_of_image(service)
    yield from faults_of_environment(service)
    yield from faults_of_ports(service)


def faults_of_image(service):
    """It is built here and never looked for elsewhere, or its version is pinned."""
    image = service.get("image", "")
    if image == BUILT:
        if service.get("pull_policy") != "never":
            yield f"{image} would be looked for in a registry"
    elif not PINNED.fullmatch(image):
        yield f"{image or 'its image'} is not pinned to a minor version"


def faults_of_environment(service):
    """Passwords come in files."""
    environment = service.get("environment") or {}
    for variable, value in environment.items():
        is_secret = re.search("PASSWORD|SECRET|(QUEUE|INDEX|LEDGER)_URL", variable)
        if is_secret and not variable.endswith("FILE"):
            yield f"{variable} is no file"
        if re.search(r"://[^/@]*:[^/@]*@", str(value)):
            yield f"{variable} has a password"


def faults_of_ports(service):
    """What `.env` does not change is published to this machine alone."""
    for port in service.get("ports", []):
        address = port.get("host_ip", "") if isinstance(port, dict) else port
        if not re.match(r"127\.0\.0\.1|\$\{PUSH_PUBLISH_HTTP:\?|\$\{\w+:-127\.0\.0\.1:", address):
            yield f"{port} is published to others"
