"""What every workload for Kubernetes keeps to."""

WORKLOADS = ("Deployment", "StatefulSet", "Job")


def faults(objects):
    """What is wrong with the objects of a kustomization."""
    found = []
    for each in objects:
        if each["kind"] in OPERATED:
            label, faults_of_cluster = OPERATED[each["kind"]]
            found += [f"{each['kind']}: {fault}" for fault in faults_of_cluster(each)]
            labels = {label: each["metadata"]["name"]}
            if not selects(objects, "NetworkPolicy", "podSelector", labels):
                found.append(f"{each['kind']}: no NetworkPolicy")
        if each["kind"] in WORKLOADS:
            name = f"{each['kind']} {each['metadata']['name']}"
            found += [f"{name}: {fault}" for fault in faults_of(each, objects)]
        if each["kind"] == "Namespace" and not any(
                policy["kind"] == "NetworkPolicy" and policy["spec"]["podSelector"] == {}
                and policy["spec"]["policyTypes"] == ["Ingress"] and "ingress" not in policy["spec"]
                for policy in objects):
            found.append(f"Namespace {each['metadata']['name']}: pods without a policy are open")
    return found


def selects(objects, kind, selector, labels):
    """If an object of this kind selects pods with these labels, and not just all pods."""
    named = [each["spec"].get(selector, {}).get("matchLabels", {}).items() for each in objects
             if each["kind"] == kind]
    return any(items and items <= labels.items() for items in named)


def faults_of(workload, objects):
    """What is wrong with one workload."""
    pod = workload["spec"]["template"]["spec"]
    user = pod.get("securityContext", {})
    if user.get("runAsNonRoot") is not True or not user.get("runAsUser"):
        yield "it may run as root"
    if user.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "system calls are not restricted"
    if pod.get("automountServiceAccountToken") is not False:
        yield "it gets a token for the cluster"
    for container in pod["containers"]:
        yield from faults_of_container(container, workload["kind"])
    if workload["kind"] == "Deployment":
        yield from faults_of_service(workload, objects)
    labels = workload["spec"]["template"]["metadata"]["labels"]
    listens = any(container.get("ports") for container in pod["containers"])
    if listens and not selects(objects, "NetworkPolicy", "podSelector", labels):
        yield "no NetworkPolicy"


def faults_of_rabbitmq(cluster):
    """What its operator would leave out, so that a namespace of the level `restricted` refuses it."""
    pod = cluster["spec"]["override"]["statefulSet"]["spec"]["template"]["spec"]
    containers = pod.get("initContainers", []) + pod.get("containers", [])
    if {each["name"] for each in containers} != {"setup-container", "rabbitmq"}:
        yield "the rights of a container are the operator's"
    yield from faults_of_rights(pod.get("securityContext", {}), containers)


def faults_of_redis(cluster):
    """The same of a Redis Cluster."""
    spec = cluster["spec"]
    nodes = [spec["redisLeader"], spec["redisFollower"]]
    yield from faults_of_rights(spec.get("podSecurityContext", {}), nodes)
    if not all(node.get("pdb", {}).get("enabled") for node in nodes):
        yield "no PodDisruptionBudget"


def faults_of_rights(user, containers):
    """What a namespace of the level `restricted` asks of a pod and its containers."""
    if user.get("runAsNonRoot") is not True:
        yield "it may run as root"
    if user.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "system calls are not restricted"
    for container in containers:
        rights = container.get("securityContext", {})
        if rights.get("allowPrivilegeEscalation") is not False:
            yield "it may gain privileges"
        if rights.get("capabilities") != {"drop": ["ALL"]}:
            yield "it keeps capabilities"


# Clusters that an operator runs: the label with their name that it gives to the pods, and their rules.
OPERATED = {
    "RabbitmqCluster": ("app.kubernetes.io/name", faults_of_rabbitmq),
    "RedisCluster": ("cluster", faults_of_redis),
}


def faults_of_container(container, kind):
    """Rights, probes, limits, secrets."""
    rights = container.get("securityContext", {})
    if rights.get("readOnlyRootFilesystem") is not True:
        yield "its file system can be written"
    if rights.get("allowPrivilegeEscalation") is not False:
        yield "it may gain privileges"
    if rights.get("capabilities") != {"drop": ["ALL"]}:
        yield "it keeps capabilities"
    resources = container.get("resources", {})
    if not {"cpu", "memory"} <= set(resources.get("requests", {})):
        yield "it requests no processor time or no memory"
    if "memory" not in resources.get("limits", {}):
        yield "no limit of memory"
    if kind != "Job" and "readinessProbe" not in container:
        yield "nothing tells when it is ready"
    for variable in container.get("env", []):
        if "secretKeyRef" in variable.get("valueFrom", {}):
            yield f"{variable['name']} has a secret in the environment"


def faults_of_service(workload, objects):
    """Of the programs of this service."""
    pod = workload["spec"]["template"]["spec"]
    container = pod["containers"][0]
    for probe in ("livenessProbe", "readinessProbe"):
        if "httpGet" not in container.get(probe, {}):
            yield f"no {probe} on the operations address"
    environment = {each["name"]: each.get("value", "") for each in container.get("env", [])}
    drain = int(environment.get("PUSH_DRAIN_DEADLINE", "25s").removesuffix("s"))
    before = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    if pod.get("terminationGracePeriodSeconds", 30) <= drain + before:
        yield "it is killed before its drain deadline"
    # `broker` of the development overlay is one pod, and its address is the overlay's alone.
    if workload["metadata"]["name"] == "broker":
        return
    if not pod.get("topologySpreadConstraints"):
        yield "its pods may all be on one node"
    labels = workload["spec"]["template"]["metadata"]["labels"]
    if not selects(objects, "PodDisruptionBudget", "selector", labels):
        yield "no PodDisruptionBudget"
