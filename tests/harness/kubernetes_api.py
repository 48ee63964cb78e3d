"""A part of the API of Kubernetes on loopback: pods are processes of this machine, without a container.

It has what the driver of Spark uses in client mode: pods, config maps and persistent volume claims can be created,
read, listed by labels, changed and deleted. A watch has no
events, so Spark polls. A pod starts the command and the
arguments of its container with the environment of the pod.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyspark

Resource = dict[str, Any]
Key = tuple[str, str]
"""The kind in the path, such as `pods`, and the name."""


class KubernetesApi:
    """The resources of all namespaces. `created` are those that clients created, in their order.

    `program` is the entry point of the image. Each pod runs in a folder of its own inside of `folder`.
    """

    def __init__(self, folder: Path, program: Sequence[str]) -> None:
        self.folder = folder
        self.program = program
        self.url = ""
        self.ended = threading.Event()
        self.created: list[Resource] = []
        self._resources: dict[Key, Resource] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Resource]:
        """Return the status and the resource, list or status that answers a request."""
        with self._lock:
            address = urlsplit(path)
            named = re.fullmatch(r"/api/v1/namespaces/([\w-]+)/(\w+)(?:/([\w.-]+))?", address.path)
            if named is None:
                return 404, status(404, f"no resource {address.path}")
            namespace, kind, name = named.groups()
            if method == "POST":
                return 201, self._create(namespace, kind, json.loads(body))
            if name is None:
                selector = parse_qs(address.query).get("labelSelector", [""])[0]
                items = [
                    each for key, each in self._resources.items() if key[0] == kind and is_selected(each, selector)
                ]
                items = [self._observe(each) for each in items]
                if method == "DELETE":
                    for each in items:
                        self._delete((kind, each["metadata"]["name"]))
                return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
            resource = self._resources.get((kind, name))
            if resource is None:
                return 404, status(404, f"no {name} in {kind}")
            if method == "DELETE":
                self._delete((kind, name))
            elif method in {"PUT", "PATCH"}:
                change = json.loads(body)
                labels = change.get("metadata", {}).get("labels", {}) if isinstance(change, dict) else {}
                resource["metadata"].setdefault("labels", {}).update(labels)
            return 200, self._observe(resource)

    def add_pod(self, name: str, namespace: str) -> None:
        """Add a pod that runs elsewhere, such as the pod of the driver."""
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "1"}
        self._resources["pods", name] = {
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": "Running"},
        }  # fmt: skip

    def _create(self, namespace: str, kind: str, resource: Resource) -> Resource:
        metadata = resource["metadata"]
        metadata |= {"namespace": namespace, "uid": f"uid-{len(self.created)}", "resourceVersion": "1"}
        metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
        self.created.append(resource)
        self._resources[kind, metadata["name"]] = resource
        if kind == "pods":
            self._start(resource)
        return resource

    def _start(self, pod: Resource) -> None:
        name = pod["metadata"]["name"]
        (container,) = pod["spec"]["containers"]
        pod["status"] = {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": []}
        folder = self.folder / name
        folder.mkdir()
        environment = dict(os.environ)
        for variable in container["env"]:
            reference = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            values = {"status.podIP": "127.0.0.1", "metadata.name": name, None: variable.get("value", "")}
            environment[variable["name"]] = values[reference]
        # In the image Spark is in /opt/spark. Its folder for data is a volume of the pod.
        environment |= {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_LOCAL_DIRS": str(folder)}
        with (folder / "log").open("wb") as log:
            command = [*container.get("command", self.program), *container["args"]]
            self._processes[name] = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)

    def _observe(self, resource: Resource) -> Resource:
        """Return a resource with the present state of its process."""
        process = self._processes.get(resource["metadata"]["name"])
        if process is not None and (code := process.poll()) is not None:
            resource["status"]["phase"] = "Failed" if code else "Succeeded"
        return resource

    def _delete(self, key: Key) -> None:
        self._resources.pop(key, None)
        process = self._processes.get(key[1])
        if process is not None:
            process.terminate()

    def close(self) -> None:
        """End all pods."""
        for process in self._processes.values():
            process.kill()
            process.wait()

    def logs(self) -> str:
        """Return the output of all pods."""
        return "\n".join(path.read_text("utf-8", errors="replace") for path in self.folder.glob("*/log"))


def status(code: int, message: str) -> Resource:
    """Return the answer to a request that failed."""
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


def is_selected(resource: Resource, selector: str) -> bool:
    """Return True if a resource has the labels `a=b` and not the labels `a!=b` of a selector."""
    labels = resource["metadata"].get("labels", {})
    for name, sign, value in re.findall(r"([^,!=]+)(!?=)([^,]*)", selector):
        if (labels.get(name) == value) != (sign == "="):
            return False
    return True


@contextmanager
def kubernetes(folder: Path, program: Sequence[str]) -> Iterator[KubernetesApi]:
    """Serve the API on a free port of loopback until the end; then all pods end."""
    api = KubernetesApi(folder, program)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            code, resource = api.answer(self.command, self.path, body)
            if "watch=true" in self.path and self.headers.get("Upgrade") is None:
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                api.ended.wait()
                self.close_connection = True
                return
            text = json.dumps(resource).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        api.url = f"http://127.0.0.1:{server.server_address[1]}"
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield api
        finally:
            api.ended.set()
            server.shutdown()
            serving.join()
            api.close()
