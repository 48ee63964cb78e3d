"""Manifests for Kubernetes: a pod that runs a pipeline and is the driver of Spark, whose executors are pods too.

The driver's pod creates the pods of its executors, so it has a service account with a role. Executors connect to the
driver by the name of a headless service. All pods see the same volumes at the same paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from capture.errors import WiretideError
from lowlevel.node.node_watchlists import find_watched_files
from queries.pipeline.file import PipelineFile

USER = 10001
"""The user of the image, as in the Containerfile."""

DRIVER_PORT, BLOCK_MANAGER_PORT = 7078, 7079
"""Ports of the driver to which executors connect."""

NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
"""Names of services: labels of RFC 1035."""


class ManifestError(WiretideError):
    """The pipeline cannot run on Kubernetes without a change."""


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods of a pipeline.

    `file`: the pipeline file (absolute). `image`: the image of all pods. `namespace`: their namespace. `volumes`: the
    name of a persistent volume claim by the folder at which it is mounted. `executors`: their number, at least 1.
    """

    file: Path
    image: str
    namespace: str
    volumes: Mapping[Path, str]
    executors: int

    @property
    def name(self) -> str:
        """The name of all resources."""
        return f"wiretide-{self.file.stem}"


def parse_volumes(texts: Sequence[str]) -> dict[Path, str]:
    """Return the name of the claim of each folder, from texts CLAIM:FOLDER. Raises ManifestError for another text.

    >>> parse_volumes(["captures:/data"])
    {PosixPath('/data'): 'captures'}
    """
    volumes = {}
    for text in texts:
        claim, _, folder = text.partition(":")
        if re.fullmatch(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?", claim) is None or not folder.startswith("/"):
            raise ManifestError(f"--volume: got {text}, expected CLAIM:FOLDER with an absolute folder: captures:/data")
        if Path(folder) in volumes:
            raise ManifestError(f"--volume: got {folder} twice, expected one claim for each folder")
        volumes[Path(folder)] = claim
    return volumes


def make_manifests(pipeline: PipelineFile, pods: Pods) -> dict[str, str]:
    """Return the manifests by the name of their file. Raises ManifestError, and the errors of `pipeline.plans`."""
    pipeline.require_local_folder("manifests")
    _raise_if_unsuitable(pipeline, pods)
    parts = [_account(pods), _service(pipeline, pods), _deployment(pipeline, pods)]
    return {f"{pods.name}.yaml": "---\n".join("".join(part) for part in parts)}


def _raise_if_unsuitable(pipeline: PipelineFile, pods: Pods) -> None:
    if NAME.fullmatch(pods.name) is None:
        raise ManifestError(
            f"got {pods.file.name}, which gives the resources the name {pods.name}; expected a file name of lower-case "
            "letters, digits and hyphens, with at most 54 characters before .toml"
        )
    if pipeline.host in {"127.0.0.1", "localhost", "::1"}:
        raise ManifestError(
            f'got host = "{pipeline.host}" under [metrics], which nothing outside the pod can reach; expected '
            'host = "0.0.0.0", for the probes of Kubernetes and for Prometheus'
        )
    paths = [pods.file, pipeline.folder, *pipeline.functions, *(link.spool for link in pipeline.spooled.values())]
    paths += filter(None, (pipeline.web_config, pipeline.token_file))
    paths += map(Path, pipeline.read_paths)
    paths += (Path(file.path) for file in find_watched_files(tuple(pipeline.plans())))
    for path in paths:
        if not any(folder == path or folder in path.parents for folder in pods.volumes):
            mounted = ", ".join(str(folder) for folder in pods.volumes) or "none"
            raise ManifestError(
                f"{path} is in none of the volumes ({mounted}); expected --volume CLAIM:FOLDER for a folder that "
                "contains it"
            )


def _head(version: str, kind: str, pods: Pods) -> Iterator[str]:
    yield f"apiVersion: {version}\n"
    yield f"kind: {kind}\n"
    yield "metadata:\n"
    yield f"  name: {pods.name}\n"
    yield f"  namespace: {json.dumps(pods.namespace)}\n"
    yield f"  labels: {{app.kubernetes.io/name: wiretide, app.kubernetes.io/instance: {pods.name}}}\n"


def _account(pods: Pods) -> Iterator[str]:
    """Yield the account of the driver, and the rights that Spark needs to manage its executors."""
    yield from _head("v1", "ServiceAccount", pods)
    yield "---\n"
    yield from _head("rbac.authorization.k8s.io/v1", "Role", pods)
    yield "rules:\n"
    yield '  - apiGroups: [""]\n'
    yield "    resources: [pods, configmaps, services, persistentvolumeclaims]\n"
    yield "    verbs: [get, list, watch, create, update, patch, delete, deletecollection]\n"
    yield "---\n"
    yield from _head("rbac.authorization.k8s.io/v1", "RoleBinding", pods)
    yield "roleRef:\n"
    yield "  apiGroup: rbac.authorization.k8s.io\n"
    yield "  kind: Role\n"
    yield f"  name: {pods.name}\n"
    yield "subjects:\n"
    yield "  - kind: ServiceAccount\n"
    yield f"    name: {pods.name}\n"
    yield f"    namespace: {json.dumps(pods.namespace)}\n"


def _service(pipeline: PipelineFile, pods: Pods) -> Iterator[str]:
    yield from _head("v1", "Service", pods)
    yield "spec:\n"
    yield "  clusterIP: None\n"
    # Executors connect before the driver is ready.
    yield "  publishNotReadyAddresses: true\n"
    yield f"  selector: {{app.kubernetes.io/instance: {pods.name}}}\n"
    yield "  ports:\n"
    for name, port in _ports(pipeline).items():
        yield f"    - {{name: {name}, port: {port}}}\n"


def _ports(pipeline: PipelineFile) -> dict[str, int]:
    return {"driver": DRIVER_PORT, "block-manager": BLOCK_MANAGER_PORT, "metrics": pipeline.port}


def spark_settings(pods: Pods) -> dict[str, str]:
    """Return the settings of Spark for a driver in a pod. `$(POD)` is the name of this pod."""
    settings = {
        "spark.kubernetes.namespace": pods.namespace,
        "spark.kubernetes.container.image": pods.image,
        "spark.kubernetes.driver.pod.name": "$(POD)",
        "spark.driver.host": f"{pods.name}.{pods.namespace}.svc",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
        "spark.executor.instances": str(pods.executors),
        "spark.pyspark.python": "/opt/wiretide/bin/python",
    }
    for number, (folder, claim) in enumerate(pods.volumes.items()):
        volume = f"spark.kubernetes.executor.volumes.persistentVolumeClaim.data-{number}"
        settings |= {f"{volume}.mount.path": str(folder), f"{volume}.options.claimName": claim}
    return settings


def _deployment(pipeline: PipelineFile, pods: Pods) -> Iterator[str]:
    arguments = ["run", str(pods.file), "--on", "k8s://https://kubernetes.default.svc", "--log-format", "json"]
    yield from _head("apps/v1", "Deployment", pods)
    yield "spec:\n"
    yield "  replicas: 1\n"
    # Two runs of one folder would exclude each other.
    yield "  strategy: {type: Recreate}\n"
    yield f"  selector: {{matchLabels: {{app.kubernetes.io/instance: {pods.name}}}}}\n"
    yield "  template:\n"
    yield "    metadata:\n"
    yield f"      labels: {{app.kubernetes.io/name: wiretide, app.kubernetes.io/instance: {pods.name}}}\n"
    yield "    spec:\n"
    yield f"      serviceAccountName: {pods.name}\n"
    # A run that stops writes its results first.
    yield "      terminationGracePeriodSeconds: 120\n"
    yield f"      securityContext: {{runAsNonRoot: true, runAsUser: {USER}, fsGroup: {USER}}}\n"
    yield "      containers:\n"
    yield "        - name: run\n"
    yield f"          image: {json.dumps(pods.image)}\n"
    yield "          args:\n"
    for argument in arguments:
        yield f"            - {json.dumps(argument)}\n"
    for key, value in spark_settings(pods).items():
        yield f"            - {json.dumps(f'--conf={key}={value}')}\n"
    yield "          env:\n"
    yield "            - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}\n"
    yield "          ports:\n"
    for name, port in _ports(pipeline).items():
        yield f"            - {{name: {name}, containerPort: {port}}}\n"
    is_protected = pipeline.web_config is not None or pipeline.token_file is not None
    yield from _probe("livenessProbe", "/healthz", 6, is_protected=is_protected)
    yield from _probe("readinessProbe", "/readyz", 1, is_protected=is_protected)
    yield "          resources: {requests: {cpu: '1', memory: 3Gi}}\n"
    yield "          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}\n"
    yield "          volumeMounts:\n"
    for number, folder in enumerate(pods.volumes):
        yield f"            - {{name: data-{number}, mountPath: {json.dumps(str(folder))}}}\n"
    yield "      volumes:\n"
    for number, claim in enumerate(pods.volumes.values()):
        yield f"        - {{name: data-{number}, persistentVolumeClaim: {{claimName: {json.dumps(claim)}}}}}\n"


def _probe(name: str, path: str, failures: int, *, is_protected: bool) -> Iterator[str]:
    yield f"          {name}:\n"
    # The probes of Kubernetes have no password. So for a protected server they only test that it accepts connections.
    check = "tcpSocket: {port: metrics}" if is_protected else f"httpGet: {{path: {path}, port: metrics}}"
    yield f"            {check}\n"
    yield "            periodSeconds: 10\n"
    yield "            timeoutSeconds: 5\n"
    yield f"            failureThreshold: {failures}\n"
