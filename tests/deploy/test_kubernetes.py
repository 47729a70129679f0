"""Kubernetes: every kustomization is built, valid by the published schemas, and keeps to the rules."""

import copy
import os
import re
import shutil
import unittest

import kubernetes_rules
import kubernetes_validate
import yaml
from cloudcoil.models.keda.v1alpha1 import ScaledObject
from cloudcoil.models.prometheus_operator.v1 import PodMonitor, PrometheusRule

from files import DEPLOY, copy_of_deploy, documents, kustomize, run

# The oldest version that the base needs: `sleep` before a stop.
VERSION = "1.30"
OVERLAYS = ("development", "cluster")

# `pushctl key create` is a program of this repository; here its file is only passed on.
PUSHCTL = "#!/bin/sh\nprintf '{}' >\"${3:-$PUSH_DEVICE_KEYS}\"\n"


# Resources of operators, by their published definitions.
MODELS = {model.__name__: model for model in (ScaledObject, PodMonitor, PrometheusRule)}


def custom_resource_faults(each):
    """What an operator's published definition does not know of an object, or wants otherwise."""
    known = MODELS[each["kind"]].model_validate(each).model_dump(mode="json", by_alias=True,
                                                         exclude_none=True)
    lost = []

    def compare(given, kept, path):
        if isinstance(given, dict):
            for key, value in given.items():
                if not isinstance(kept, dict) or key not in kept:
                    lost.append(f"{path}.{key}")
                else:
                    compare(value, kept[key], f"{path}.{key}")
        elif isinstance(given, list):
            for number, value in enumerate(given):
                compare(value, kept[number], f"{path}[{number}]")

    compare(each["spec"], known["spec"], "spec")
    return lost


def files_alone():
    """The objects of the files, where nothing builds a kustomization: patches are not applied."""
    objects = []
    for path in sorted((DEPLOY / "k8s").rglob("*.yaml")):
        if path.name != "kustomization.yaml":
            objects += documents(path.read_text())
    return objects


def built(case):
    """The objects of each kustomization by its name."""
    command = kustomize()
    if command is None:
        print("kubectl and kustomize are not installed: files are checked without their patches")
        return {"files": files_alone()}
    deploy = copy_of_deploy(case)
    (deploy / "bin").mkdir()
    (deploy / "bin" / "pushctl").write_text(PUSHCTL)
    (deploy / "bin" / "pushctl").chmod(0o755)
    environment = {**os.environ, "PATH": f"{deploy / 'bin'}:{os.environ['PATH']}"}
    for overlay in OVERLAYS:
        run(deploy / "k8s" / "setup", overlay, env=environment)
    other = deploy / "k8s" / "overlays" / "without-prometheus"
    other.mkdir()
    (other / "kustomization.yaml").write_text(
        "resources: [../../base]\ncomponents: [../../components/keda-without-prometheus]\n")
    folders = {"base": deploy / "k8s" / "base", other.name: other}
    folders |= {name: deploy / "k8s" / "overlays" / name for name in OVERLAYS}
    return {name: documents(run(*command, folder)) for name, folder in folders.items()}


class Kubernetes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        case = unittest.TestCase()
        cls.addClassCleanup(case.doCleanups)
        cls.built = built(case)

    def test_every_object_is_valid_by_the_schemas_of_kubernetes_and_of_operators(self):
        unknown, seen = set(), 0
        for name, objects in self.built.items():
            for each in objects:
                with self.subTest(name, kind=each["kind"], name=each["metadata"]["name"]):
                    seen += 1
                    if each["kind"] in MODELS:
                        self.assertEqual(custom_resource_faults(each), [])
                    elif each["kind"] in kubernetes_rules.OPERATED:
                        unknown.add(each["kind"])
                    else:
                        kubernetes_validate.validate(each, VERSION, strict=True)
        self.assertGreater(seen, 25)
        # Their operators' definitions are in no package that could be installed here.
        self.assertLessEqual(unknown, set(kubernetes_rules.OPERATED))

    def test_every_workload_keeps_to_the_rules(self):
        for name, objects in self.built.items():
            self.assertEqual(kubernetes_rules.faults(objects), [], name)

    def test_a_fault_is_noticed(self):
        objects = next(iter(self.built.values()))
        ingest = next(each for each in objects if each["kind"] == "Deployment"
                      and each["metadata"]["name"] == "ingest")

        def faults(change):
            changed = copy.deepcopy(ingest)
            change(changed["spec"]["template"]["spec"])
            return list(kubernetes_rules.faults_of(changed, objects))

        self.assertEqual(faults(lambda pod: None), [])
        self.assertEqual(faults(lambda pod: pod.update(securityContext={})),
                         ["it may run as root", "system calls are not restricted"])
        self.assertEqual(faults(lambda pod: pod.update(terminationGracePeriodSeconds=30)),
                         ["it is killed before its drain deadline"])
        self.assertEqual(faults(lambda pod: pod["containers"][0].pop("livenessProbe")),
                         ["no livenessProbe on the operations address"])
        self.assertEqual(faults(lambda pod: pod.pop("topologySpreadConstraints")),
                         ["its pods may all be on one node"])
        policies = [each for each in objects if each["kind"] != "NetworkPolicy"]
        self.assertEqual(list(kubernetes_rules.faults_of(ingest, policies)), ["no NetworkPolicy"])
        namespace = [{"kind": "Namespace", "metadata": {"name": "push"}}]
        self.assertEqual(kubernetes_rules.faults(namespace),
                         ["Namespace push: pods without a policy are open"])
        scaled = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
                  "metadata": {"name": "any"},
                  "spec": {"scaleTargetRef": {"name": "any"}, "maxReplicas": 3,
                           "triggers": [{"type": "prometheus", "metadata": {"query": "1"}}]}}
        self.assertEqual(custom_resource_faults(scaled), ["spec.maxReplicas"])
        monitor = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor",
                   "metadata": {"name": "any"},
                   "spec": {"selector": {}, "podMetricsEndpoints": [{"ports": "operations"}]}}
        self.assertEqual(custom_resource_faults(monitor), ["spec.podMetricsEndpoints[0].ports"])
        rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        template = {"spec": {"initContainers": [{"name": "setup-container"}],
                             "containers": [{"name": "rabbitmq", "securityContext": rights}]}}
        cluster = {"spec": {"override": {"statefulSet": {"spec": {"template": template}}}}}
        self.assertEqual(list(kubernetes_rules.faults_of_rabbitmq(cluster)),
                         ["it may run as root", "system calls are not restricted",
                          "it may gain privileges", "it keeps capabilities"])
        node = {"securityContext": rights}
        cluster = {"spec": {"redisLeader": node, "redisFollower": {**node, "pdb": {}},
                            "podSecurityContext": {"runAsNonRoot": True}}}
        self.assertEqual(list(kubernetes_rules.faults_of_redis(cluster)),
                         ["system calls are not restricted", "no PodDisruptionBudget"])
        broken = copy.deepcopy(ingest)
        broken["spec"]["replica"] = 2
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(broken, VERSION, strict=True)

    @unittest.skipIf(kustomize() is None, "kubectl and kustomize are not installed")
    def test_an_overlay_gives_each_program_the_secrets_that_it_mounts(self):
        for name in OVERLAYS:
            objects = self.built[name]
            there = {each["metadata"]["name"] for each in objects
                     if each["kind"] in ("Secret", "ConfigMap")}
            for each in objects:
                if each["kind"] in kubernetes_rules.WORKLOADS:
                    for volume in each["spec"]["template"]["spec"].get("volumes", []):
                        source = volume.get("secret", {}).get("secretName") \
                            or volume.get("configMap", {}).get("name")
                        if source:
                            self.assertIn(source, there, f"{name}: {each['metadata']['name']}")

    def test_the_alerts_for_the_operator_are_those_of_the_rules(self):
        alerts = yaml.safe_load(run(DEPLOY / "k8s" / "alerts", "release=prometheus"))
        rules = yaml.safe_load((DEPLOY / "monitoring" / "prometheus" / "rules.yml").read_text())
        self.assertEqual(custom_resource_faults(alerts), [])
        self.assertEqual(alerts["spec"], rules)
        self.assertEqual(alerts["metadata"]["labels"]["release"], "prometheus")

    def test_prometheus_finds_the_pods_and_names_them_as_the_alerts_do(self):
        pods, monitors = {}, []
        for each in files_alone():
            if each["kind"] == "Deployment":
                labels = each["spec"]["template"]["metadata"]["labels"]
                ports = each["spec"]["template"]["spec"]["containers"][0].get("ports", [])
                pods[labels["app.kubernetes.io/name"]] = {port["name"] for port in ports}
            elif each["kind"] == "PodMonitor":
                monitors.append(each["spec"])
        # By RabbitMQ's operator.
        pods["rabbitmq"] = {"prometheus"}
        found = set()
        for monitor in monitors:
            self.assertEqual(monitor["jobLabel"], "app.kubernetes.io/name")
            name = monitor["selector"]["matchLabels"][monitor["jobLabel"]]
            self.assertLessEqual({end["port"] for end in monitor["podMetricsEndpoints"]}, pods[name])
            found.add(name)
        self.assertEqual(found, {"ingest", "fanout-worker", "console", "rabbitmq"})

    def test_the_images_have_the_version_that_is_released(self):
        top = DEPLOY.parent / "Cargo.toml"
        version = re.search(r'^version = "(.+)"$', top.read_text(), re.MULTILINE).group(1)
        base = yaml.safe_load((DEPLOY / "k8s" / "base" / "kustomization.yaml").read_text())
        self.assertEqual({image["newTag"] for image in base["images"]}, {version})

    def test_workers_are_scaled_on_work_and_not_on_the_depth_of_the_task_lane(self):
        scaled = [each for objects in self.built.values() for each in objects
                  if each["kind"] == "ScaledObject"]
        self.assertTrue(scaled)
        for each in scaled:
            first, second = each["spec"]["triggers"]
            self.assertIn("push_broadcast_work_seconds_left", str(first["metadata"]))
            self.assertIn('push_queue_messages{queue="jobs"}', str(second["metadata"]))


if __name__ == "__main__":
    unittest.main()
