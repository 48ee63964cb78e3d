"""The manifests are valid by the schemas of Kubernetes, and Spark starts executors with their settings.

There is no cluster: `tests.harness.kubernetes_api` starts each pod as a process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

import wiretide
from dashboards.deployment.kubernetes import ManifestError, Pods, make_manifests, spark_settings
from queries.pipeline.file import parse_pipeline
from tests.harness.command_line import run
from tests.harness.kubernetes_api import kubernetes
from tests.harness.links import write_links

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "tests" / "schemas" / "kubernetes.json").read_text())
ENTRYPOINT = ROOT / "dashboards" / "deployment" / "entrypoint.sh"
SQL = "SELECT srcIP, count(*) AS packets FROM packets GROUP BY srcIP"
QUERY = '[queries.q]\nsql = "SELECT count(*) AS n FROM packets [RANGE 1 minute]"\n'
FILE = f'folder = "/data/results"\n[links]\na = "/data/a.pcap"\n[metrics]\nhost = "0.0.0.0"\n{QUERY}'
TABLE = """[links.logins]
table = "/srv/logins/*.csv"
schema = "PROTOCOL logins { TIME ts (increasing); UINT id; }"
"""
PODS = Pods(Path("/data/office.toml"), "registry.example/wiretide:1", "monitoring", {Path("/data"): "captures"}, 3)


def manifests(text: str = FILE, pods: Pods = PODS) -> dict[str, Any]:
    """Return the resources by their kinds."""
    ((name, content),) = make_manifests(parse_pipeline(text, Path("/data")), pods).items()
    assert name == "wiretide-office.yaml"
    return {each["kind"]: each for each in yaml.safe_load_all(content)}


def errors(resource: dict[str, Any]) -> list[str]:
    schema = {"$ref": SCHEMA["kinds"][resource["kind"]], "$defs": SCHEMA["$defs"]}
    return [error.message for error in Draft202012Validator(schema).iter_errors(resource)]


@pytest.mark.parametrize("text", [FILE, FILE.replace("host =", 'token_file = "token"\nhost =')], ids=["open", "token"])
def test_the_resources_are_valid_by_the_schemas_of_kubernetes(text: str) -> None:
    resources = manifests(text)
    assert [*resources] == ["ServiceAccount", "Role", "RoleBinding", "Service", "Deployment"]
    assert [error for resource in resources.values() for error in errors(resource)] == []


def test_the_schemas_refuse_unknown_keys() -> None:
    deployment = manifests()["Deployment"]
    deployment["spec"]["template"]["spec"]["containers"][0]["volumemounts"] = []
    (error,) = errors(deployment)
    assert "'volumemounts'" in error


def test_the_pod_has_the_address_that_executors_are_told() -> None:
    resources = manifests()
    service, deployment = resources["Service"], resources["Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    settings = spark_settings(PODS)
    assert settings["spark.driver.host"] == f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    ports = {port["name"]: str(port["port"]) for port in service["spec"]["ports"]}
    assert ports["driver"] == settings["spark.driver.port"]
    assert ports["block-manager"] == settings["spark.driver.blockManager.port"]
    assert ports["metrics"] == "9464"


def test_probes_ask_for_health_unless_the_server_wants_a_password() -> None:
    def probe(text: str) -> Any:
        return manifests(text)["Deployment"]["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]

    assert probe(FILE)["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert probe(FILE.replace("host =", 'token_file = "token"\nhost ='))["tcpSocket"] == {"port": "metrics"}


@pytest.mark.parametrize(
    ("text", "pods", "problem"),
    [
        (FILE.replace("/data/a", "/srv/a"), {}, "/srv/a.pcap is in none of the volumes (/data); expected --volume"),
        (FILE + TABLE, {}, "/srv/logins/*.csv is in none of the volumes (/data); expected --volume"),
        (FILE.replace("/data/results", "/srv/out"), {}, "/srv/out is in none of the volumes"),
        (FILE.replace("host =", 'token_file = "/srv/token"\nhost ='), {}, "/srv/token is in none of the volumes"),
        (FILE.replace("0.0.0.0", "127.0.0.1"), {}, 'expected host = "0.0.0.0"'),
        (FILE, {"file": Path("/data/Office_1.toml")}, "expected a file name of lower-case letters"),
    ],
    ids=["capture", "table", "results", "token", "loopback", "name"],
)
def test_pipelines_that_cannot_run_there_are_refused(text: str, pods: dict[str, Any], problem: str) -> None:
    settings = {field: getattr(PODS, field) for field in ("file", "image", "namespace", "volumes", "executors")}
    with pytest.raises(ManifestError) as raised:
        make_manifests(parse_pipeline(text, Path("/data")), Pods(**settings | pods))
    assert problem in str(raised.value)


def test_watchlists_and_functions_must_be_in_a_volume(tmp_path: Path) -> None:
    watchlist, functions = tmp_path / "bad.txt", tmp_path / "functions.py"
    watchlist.write_text("192.0.2.1\n")
    functions.write_text("")
    named = FILE.replace("minute]", f"minute] WHERE in_list(srcIP, '{watchlist}')")
    for text, path in ((named, watchlist), (f'functions = "{functions}"\n{FILE}', functions)):
        with pytest.raises(ManifestError) as raised:
            manifests(text)
        assert f"{path} is in none of the volumes" in str(raised.value)


def test_the_command_writes_the_manifests(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('[links]\na = "a.pcap"\n[metrics]\nhost = "0.0.0.0"\n' + QUERY)
    options = ["--image", "wiretide:1", "--volume", f"data:{tmp_path.resolve()}"]
    status, out, err = run("manifests", "p.toml", *options, cwd=tmp_path)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "kubernetes/wiretide-p.yaml", "next:", "  kubectl apply -f kubernetes/wiretide-p.yaml",
    ]  # fmt: skip
    resources = [*yaml.safe_load_all((tmp_path / "kubernetes" / "wiretide-p.yaml").read_text())]
    assert resources[-1]["spec"]["template"]["spec"]["containers"][0]["args"][:2] == [
        "run", str(tmp_path.resolve() / "p.toml"),
    ]  # fmt: skip
    status, out, err = run("manifests", "p.toml", "--image", "w", "--volume", "data", cwd=tmp_path)
    assert status != 0
    assert "got data, expected CLAIM:FOLDER" in err


@pytest.mark.spark
@pytest.mark.slow("starts a driver and executors")
def test_a_driver_with_these_settings_starts_executors_that_answer(tmp_path: Path) -> None:
    """The entry point of the image starts the executors. The rows equal those of the inline engine."""
    for name in ("pods", "data"):
        (tmp_path / name).mkdir()
    trace = write_links(tmp_path / "data", 42)[0].path
    pods = Pods(tmp_path / "data" / "p.toml", "wiretide:1", "monitoring", {tmp_path / "data": "captures"}, 1)
    with kubernetes(tmp_path / "pods", [str(ENTRYPOINT)]) as api:
        api.add_pod("driver", "monitoring")
        here = {
            "spark.kubernetes.driver.pod.name": "driver",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.port": "0",
            "spark.driver.blockManager.port": "0",
            "spark.pyspark.python": sys.executable,
            "spark.executor.memory": "512m",
            "spark.kubernetes.executor.apiPollingInterval": "1s",
        }
        settings = [f"--conf={key}={value}" for key, value in (spark_settings(pods) | here).items()]
        command = [sys.executable, "-m", "wiretide", "query", trace, SQL, "--format", "csv", "--on", f"k8s://{api.url}"]
        done = subprocess.run([*command, *settings], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), api.logs()
        header, *rows = done.stdout.splitlines()
        assert header == "srcIP,packets"
        expected = [",".join(map(str, row.values())) for row in wiretide.query(SQL, trace).to_pylist()]
        assert len(expected) > 3
        assert sorted(rows) == sorted(expected)
        (executor,) = (pod for pod in api.created if pod["kind"] == "Pod")
    assert executor["metadata"]["namespace"] == "monitoring"
    (container,) = executor["spec"]["containers"]
    assert (container["image"], container["args"]) == ("wiretide:1", ["executor"])
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in executor["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }
    assert {claims[name]: mounts[name] for name in claims} == {"captures": str(tmp_path / "data")}
    (owner,) = executor["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Pod", "driver")
