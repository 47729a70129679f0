"""The compose stack: settings of every service, `setup`, and what Compose makes of it."""

import copy
import json
import re
import stat
import subprocess
import unittest

import yaml

import compose_rules
from compose import compose, why_missing
from files import DEPLOY, SECONDS, copy_of_deploy, run

PASSWORDS = ("rabbitmq-password", "redis-password", "mqtt-worker-password", "grafana-password")


def stack():
    return yaml.safe_load((DEPLOY / "docker-compose.yml").read_text())


def config(deploy):
    """What Compose makes of the stack, with all profiles."""
    return json.loads(compose(deploy, "--profile", "*", "config", "--format", "json"))


class Services(unittest.TestCase):
    def test_every_service_has_limits_of_its_own_and_no_more_rights_than_it_needs(self):
        services = stack()["services"]
        self.assertGreater(len(services), 8)
        self.assertEqual(compose_rules.faults(services), [])

    def test_a_service_without_a_limit_or_with_a_password_is_noticed(self):
        services = stack()["services"]
        plant = {
            "mem_limit": (None, "no limit of memory"),
            "ulimits": ({}, "no limit of open files between 65536 and 1048576"),
            "read_only": (False, "its file system can be written"),
            "cap_drop": (None, "it keeps capabilities"),
            "security_opt": ([], "it may gain privileges"),
            "logging": ({}, "its log has no bound"),
            "image": ("redis:7-alpine", "redis:7-alpine is not pinned to a minor version"),
            "environment": ({"REDIS_PASSWORD": "x"}, "REDIS_PASSWORD is no file"),
            "ports": (["6379:6379"], "6379:6379 is published to others"),
        }
        for setting, (value, fault) in plant.items():
            redis = copy.deepcopy(services["redis"])
            redis[setting] = value
            self.assertEqual(list(compose_rules.faults_of(redis)), [fault])
        url = {"environment": {"PUSH_MQTT_URL": "mqtt://worker:secret@broker:1884"}}
        worker = {**services["fanout-worker"], **url}
        self.assertEqual(list(compose_rules.faults_of(worker)), ["PUSH_MQTT_URL has a password"])
        worker = {**services["fanout-worker"], "pull_policy": "missing"}
        self.assertEqual(len(list(compose_rules.faults_of(worker))), 1)

    def test_a_stop_is_longer_than_the_drain_deadline(self):
        services = stack()["services"]
        for name in ("ingest", "fanout-worker", "broker"):
            seconds = lambda text: int(text.removesuffix("s"))
            drain = services[name]["environment"]["<<"] if "<<" in services[name]["environment"] \
                else services[name]["environment"]
            drain = seconds(drain["PUSH_DRAIN_DEADLINE"])
            self.assertGreater(seconds(services[name]["stop_grace_period"]), drain)

    def test_the_image_lets_no_program_listen_unencrypted_by_itself(self):
        settings = re.findall(r"^(?:ENV)?\s+(PUSH_\w+)=", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
        self.assertIn("PUSH_LISTEN", settings)
        self.assertEqual([name for name in settings if name.endswith("_IN_CLEAR")], [])

    def test_prometheus_reads_each_program_where_it_listens(self):
        services = stack()["services"]
        prometheus = yaml.safe_load((DEPLOY / "monitoring" / "prometheus" / "prometheus.yml").read_text())
        read = {name: found["port"] for job in prometheus["scrape_configs"]
                for found in job.get("dns_sd_configs", []) for name in found["names"]}
        image = re.search(r"PUSH_OPS_LISTEN=\S+:(\d+)", (DEPLOY / "Dockerfile").read_text()).group(1)
        for name in ("ingest", "fanout-worker", "broker", "console"):
            address = services[name]["environment"].get("PUSH_OPS_LISTEN", f":{image}")
            self.assertEqual(read[name], int(address.rpartition(":")[2]), name)

    def test_every_variable_of_the_stack_is_explained_or_set_by_setup(self):
        text = (DEPLOY / "docker-compose.yml").read_text()
        used = set(re.findall(r"\$\{(PUSH_\w+)", text))
        explained = set(re.findall(r"\b(PUSH_\w+)=", (DEPLOY / ".env.example").read_text()))
        by_setup = set(re.findall(r"set_setting (PUSH_\w+)", (DEPLOY / "setup").read_text()))
        others = {"PUSH_PUBLISH_PROMETHEUS", "PUSH_PUBLISH_GRAFANA",
                  "PUSH_PROMETHEUS_MEMORY", "PUSH_GRAFANA_MEMORY"}
        self.assertGreater(len(used), 15)
        self.assertEqual(used - explained - by_setup - others, set())


class Setup(unittest.TestCase):
    def setUp(self):
        self.deploy = copy_of_deploy(self)

    def secrets(self):
        return {name: (self.deploy / "secrets" / name).read_text() for name in PASSWORDS}

    def test_it_makes_long_passwords_that_others_cannot_read_and_keeps_them(self):
        run(self.deploy / "setup")
        mode = lambda path: stat.S_IMODE((self.deploy / path).stat().st_mode)
        self.assertEqual((mode(".env"), mode("secrets")), (0o600, 0o700))
        made = self.secrets()
        self.assertEqual(len(set(made.values())), len(PASSWORDS))
        for password in made.values():
            self.assertRegex(password, r"^[0-9a-f]{48}\n$")
            self.assertNotIn(password.strip(), (self.deploy / ".env").read_text())
        # A lost .env is made anew, and nothing else changes.
        (self.deploy / ".env").unlink()
        run(self.deploy / "setup")
        self.assertEqual(self.secrets(), made)
        self.assertTrue((self.deploy / ".env").exists())

    def test_certificates_are_for_the_host_and_stay_in_use_when_the_settings_are_lost(self):
        run(self.deploy / "setup", "tls", "push.example.com")
        tls = self.deploy / "secrets" / "tls"
        run("openssl", "verify", "-CAfile", tls / "ca.pem", "-verify_hostname", "push.example.com",
            tls / "cert.pem")
        first = (tls / "cert.pem").read_text()
        (self.deploy / ".env").unlink()
        run(self.deploy / "setup")
        self.assertIn("\nPUSH_TLS=on\n", (self.deploy / ".env").read_text())
        # Renewed by the same authority.
        ca = (tls / "ca.pem").read_text()
        run(self.deploy / "setup", "tls", "push.example.com")
        self.assertNotEqual((tls / "cert.pem").read_text(), first)
        self.assertEqual((tls / "ca.pem").read_text(), ca)

    def test_wrong_arguments_are_refused_and_change_nothing(self):
        for arguments in (["tls"], ["tls", "a b"], ["tls", "localhost"], ["tls", "x", "--cert", "/dev/null"], ["other"]):
            done = subprocess.run([self.deploy / "setup", *arguments], capture_output=True,
                                  timeout=SECONDS)
            self.assertNotEqual(done.returncode, 0, arguments)
            self.assertFalse((self.deploy / "secrets" / "tls" / "cert.pem").exists())


WHY_MISSING = why_missing()


@unittest.skipIf(WHY_MISSING, f"`docker compose config` was not run: {WHY_MISSING}")
class Compose(unittest.TestCase):
    def setUp(self):
        self.deploy = copy_of_deploy(self)

    def test_nothing_starts_before_setup_and_the_message_says_so(self):
        with self.assertRaisesRegex(AssertionError, "run ./setup once"):
            config(self.deploy)

    def test_it_reads_the_stack_with_and_without_certificates(self):
        run(self.deploy / "setup")
        clear = config(self.deploy)
        self.assertEqual(compose_rules.faults(clear["services"]), [])
        self.assertEqual(clear["services"]["ingest"]["environment"]["PUSH_HTTP_IN_CLEAR"], "on")
        self.assertEqual(clear["secrets"]["mqtt-url"]["file"].rpartition("/")[2], "mqtt-url")
        run(self.deploy / "setup", "tls", "push.example.com")
        services = config(self.deploy)["services"]
        ingest = services["ingest"]["environment"]
        self.assertNotIn("PUSH_HTTP_IN_CLEAR", ingest)
        self.assertEqual(ingest["PUSH_TLS_CERT"], "/run/tls/cert.pem")
        self.assertEqual(services["broker"]["networks"]["workers"]["aliases"], ["push.example.com"])
        self.assertEqual(config(self.deploy)["secrets"]["mqtt-url"]["file"].rpartition("/")[2],
                         "mqtts-url")

    def test_the_example_of_an_override_is_read_and_git_ignores_what_is_made_of_it(self):
        run(self.deploy / "setup")
        example = self.deploy / "docker-compose.override.example.yml"
        example.rename(self.deploy / "docker-compose.override.yml")
        services = config(self.deploy)["services"]
        self.assertEqual(services["ingest"]["environment"]["PUSH_MAX_CONNECTIONS"], "20000")
        self.assertEqual(services["ingest"]["environment"]["PUSH_NAMESPACE"], "push")
        ignored = (DEPLOY / ".gitignore").read_text().split()
        for name in (".env", "secrets/", "backups/", "docker-compose.override.yml"):
            self.assertIn(name, ignored)

    def test_profiles_start_only_what_they_name(self):
        run(self.deploy / "setup")
        command = ["config", "--services"]
        always = set(compose(self.deploy, *command).split())
        self.assertEqual(always, {"device-keys", "ingest", "fanout-worker", "rabbitmq", "redis",
                                  "broker", "console"})
        monitored = set(compose(self.deploy, "--profile", "monitoring", *command).split())
        self.assertEqual(monitored - always, {"prometheus", "grafana"})


if __name__ == "__main__":
    unittest.main()
