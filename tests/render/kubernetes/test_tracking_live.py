"""Who may do what in MLflow as it is rendered, and its nightly job, with real parts (``tracking_world``)."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import boto3
import pytest
from client.tracking_pod import Pod
from kube.api import Api, RefusedError, refused
from ports import reserved
from render.kubernetes.tracking_world import VENV, Tracking, found, now, pod_of, tracked, variables
from waiting import until

from infra.render.kubernetes import research, tracking

DAY = 86_400_000


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tracking]:
    with tracked(tmp_path_factory.mktemp("tracking")) as made:
        yield made


# -- Who sees what ------------------------------------------------------------------------------------------


def people(here: Tracking, *logins: str) -> Sequence[Api]:
    return [here.plane.somebody(login) for login in logins]


def test_a_program_in_a_runs_pod_logs_through_the_sidecar_with_the_pods_own_token(
    mlflow: Tracking, tmp_path: Path
) -> None:
    """Both halves together: the sidecar as a process, MLflow's client with nothing set, and this server."""
    ada, alan = people(mlflow, "ada", "alan")
    work = mlflow.cluster.storage.work
    assert work is not None
    with reserved(1) as (port,):
        made = Pod(
            tmp_path / "pod", port, mlflow.environment["AWS_ENDPOINT_URL"], mlflow.address,
            "seam-1", "uid-of-seam", {}, token=mlflow.token(ada, "user-ada"), bucket=work.bucket,
        )  # fmt: skip
        made.start()
        try:
            said = made.run("""
                import mlflow, pathlib
                with mlflow.start_run() as run:
                    mlflow.log_metric("loss", 0.5, step=1)
                    pathlib.Path("weights.bin").write_bytes(b"w" * 1000)
                    mlflow.log_artifact("weights.bin")
                    print("logged to", mlflow.get_run(run.info.run_id).info.run_id)
            """)
            made.end()
        finally:
            assert made.sidecar is not None
            made.sidecar.kill()
    run = said.split("logged to ")[1].split()[0]
    token = mlflow.token(ada, "user-ada")
    code, told = mlflow.history(token, "user-ada", run, "loss")
    assert (code, [each["value"] for each in told["metrics"]]) == (200, [0.5])
    code, told = mlflow.call(token, "user-ada", f"mlflow/runs/get?run_id={run}")
    assert (code, told["run"]["info"]["run_name"], told["run"]["info"]["status"]) == (
        200,
        "seam-1",
        "FINISHED",
    )
    assert mlflow.call(mlflow.token(alan, "user-alan"), "user-ada", f"mlflow/runs/get?run_id={run}")[0] == 403


def test_nobody_sees_the_workspace_of_another_person(mlflow: Tracking) -> None:
    grace, alan = people(mlflow, "grace", "alan")
    tokens = {"user-grace": mlflow.token(grace, "user-grace"), "user-alan": mlflow.token(alan, "user-alan")}
    for own, other in (("user-grace", "user-alan"), ("user-alan", "user-grace")):
        run = mlflow.run(tokens[own], own)
        with pytest.raises(RefusedError, match="403"):
            mlflow.token(alan if own == "user-grace" else grace, own)
        # Into the workspace of the other, by the name of the workspace or by that of the run.
        assert mlflow.call(tokens[other], own, f"mlflow/runs/get?run_id={run}")[0] == 403
        assert mlflow.call(tokens[other], other, f"mlflow/runs/get?run_id={run}")[0] == 404
        point = {"run_id": run, "key": "loss", "value": 0, "timestamp": now()}
        assert mlflow.call(tokens[other], own, "mlflow/runs/log-metric", point)[0] == 403
        assert mlflow.call(tokens[other], other, "mlflow/runs/log-metric", point)[0] == 404
        assert mlflow.call(tokens[other], own, "mlflow/experiments/create", {"name": "mine"})[0] == 403
        code, said = mlflow.call(tokens[own], own, f"mlflow/runs/get?run_id={run}")
        assert (code, said["run"]["data"].get("metrics", [])) == (200, [])


def test_nobody_searches_in_the_workspace_of_another_person(mlflow: Tracking) -> None:
    """By the name of the workspace, or by the ids of what is in it; page by page, too."""
    grace, alan = people(mlflow, "grace", "alan")
    mine, theirs = mlflow.token(grace, "user-grace"), mlflow.token(alan, "user-alan")
    run = mlflow.run(mine, "user-grace")
    _, said = mlflow.call(mine, "user-grace", f"mlflow/runs/get?run_id={run}")
    experiment = said["run"]["info"]["experiment_id"]
    searches = (
        ("mlflow/experiments/search", {"max_results": 100}),
        ("mlflow/runs/search", {"experiment_ids": [experiment], "max_results": 100}),
        ("mlflow/logged-models/search", {"experiment_ids": [experiment]}),
        (
            "/graphql",
            {
                "query": f'query q {{ mlflowSearchRuns(input: {{experimentIds: ["{experiment}"]}})'
                " { runs { info { runId } } } }",
                "operationName": "q",
            },
        ),
    )
    mlflow.run(mine, "user-grace")  # in another experiment: there are two pages of one
    for path, body in searches:
        assert mlflow.call(mine, "user-grace", path, body)[0] == 200
        for most in ({}, {"max_results": 1}):
            there = mlflow.call(theirs, "user-grace", path, {**body, **most})
            assert there[0] == 403, (path, there)
            own = mlflow.call(theirs, "user-alan", path, {**body, **most})
            assert run not in json.dumps(own), (path, own)
    _, said = mlflow.call(mine, "user-grace", *searches[1])
    assert [each["info"]["run_id"] for each in said["runs"]] == [run]
    _, said = mlflow.call(theirs, "user-alan", *searches[0])
    assert experiment not in [each["experiment_id"] for each in said.get("experiments", ())]
    for path in (f"mlflow/experiments/get?experiment_id={experiment}", f"mlflow/runs/get?run_id={run}"):
        assert mlflow.call(theirs, "user-grace", path)[0] == 403
    assert mlflow.history(theirs, "user-grace", run, "loss")[0] == 403


def test_registered_models_are_closed_to_others(mlflow: Tracking) -> None:
    """Two people may have models of one name, and neither sees, changes or removes the other's."""
    grace, alan = people(mlflow, "grace", "alan")
    mine, theirs = mlflow.token(grace, "user-grace"), mlflow.token(alan, "user-alan")
    registered = "mlflow/registered-models"
    model = {"name": "resnet", "description": "of grace"}
    code, said = mlflow.call(mine, "user-grace", f"{registered}/create", model)
    assert code == 200, said
    run = mlflow.run(mine, "user-grace")
    _, said = mlflow.call(mine, "user-grace", f"mlflow/runs/get?run_id={run}")
    version = {"name": "resnet", "source": f"{said['run']['info']['artifact_uri']}/model", "run_id": run}
    code, said = mlflow.call(mine, "user-grace", "mlflow/model-versions/create", version)
    assert code == 200, said

    requests: list[tuple[str, object, str]] = [
        (f"{registered}/get?name=resnet", None, ""),
        (f"{registered}/create", {"name": "of-alan"}, ""),
        (f"{registered}/update", {"name": "resnet", "description": "of alan"}, "PATCH"),
        (f"{registered}/set-tag", {"name": "resnet", "key": "by", "value": "alan"}, ""),
        (f"{registered}/alias", {"name": "resnet", "alias": "best", "version": "1"}, ""),
        (f"{registered}/delete", {"name": "resnet"}, "DELETE"),
        ("mlflow/model-versions/get?name=resnet&version=1", None, ""),
        ("mlflow/model-versions/get-download-uri?name=resnet&version=1", None, ""),
        ("mlflow/model-versions/create", version, ""),
        ("mlflow/model-versions/delete", {"name": "resnet", "version": "1"}, "DELETE"),
    ]
    for path, body, method in requests:
        code, said = mlflow.call(theirs, "user-grace", path, body, method=method)
        assert code == 403, (path, said)

    mlflow.call(mine, "user-grace", f"{registered}/create", {"name": "of-grace"})
    for path in (f"{registered}/search", "mlflow/model-versions/search"):
        assert "resnet" in json.dumps(mlflow.call(mine, "user-grace", f"{path}?max_results=100"))
        for most in (1, 100):
            there = mlflow.call(theirs, "user-grace", f"{path}?max_results={most}")
            assert there[0] == 403, (path, there)
            code, said = mlflow.call(theirs, "user-alan", f"{path}?max_results={most}")
            assert (code, "resnet" in json.dumps(said)) == (200, False), (path, said)
    assert mlflow.call(theirs, "user-alan", f"{registered}/get?name=resnet")[0] == 404
    code, said = mlflow.call(theirs, "user-alan", f"{registered}/create", {"name": "resnet"})
    assert code == 200, said
    code, said = mlflow.call(mine, "user-grace", f"{registered}/get?name=resnet")
    assert (code, said["registered_model"]["description"]) == (200, "of grace")
    assert [each["version"] for each in said["registered_model"]["latest_versions"]] == ["1"]


def test_each_sees_their_own_workspaces_in_the_list(mlflow: Tracking) -> None:
    (alan,) = people(mlflow, "alan")
    for namespace in ("user-alan", "team-researchers"):
        code, said = mlflow.call(mlflow.token(alan, namespace), None, "3.0/mlflow/workspaces")
        assert (code, [each["name"] for each in said["workspaces"]]) == (200, [namespace])


def test_members_share_the_workspace_of_their_group(mlflow: Tracking) -> None:
    alan, grace = people(mlflow, "alan", "grace")
    run = mlflow.run(mlflow.token(alan, "team-researchers"), "team-researchers")
    code, said = mlflow.call(
        mlflow.token(grace, "team-researchers"), "team-researchers", f"mlflow/runs/get?run_id={run}"
    )
    assert code == 200, said
    with pytest.raises(RefusedError, match="403"):
        mlflow.token(alan, "team-engineers")
    for token in (mlflow.token(alan, "user-alan"), mlflow.token(mlflow.plane.admin, "team-engineers")):
        assert mlflow.call(token, "team-researchers", f"mlflow/runs/get?run_id={run}")[0] == 403


def test_a_token_is_wanted_that_the_api_server_takes(mlflow: Tracking) -> None:
    search = "mlflow/experiments/search?max_results=1"
    assert mlflow.call(None, "user-ada", search)[0] == 401
    assert mlflow.call("x.y.z", "user-ada", search)[0] == 401
    spec = {"audiences": [research.AUDIENCE], "expirationSeconds": 600}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    (ada,) = people(mlflow, "ada")
    path = f"/api/v1/namespaces/user-ada/serviceaccounts/{research.WORK}/token"
    for_aws = ada.call("POST", path, body)["status"]["token"]
    assert mlflow.call(for_aws, "user-ada", search)[0] == 401


def test_it_answers_to_its_names_alone(mlflow: Tracking) -> None:
    """As the rest of these tests names it, and through a forwarded port; not what a page's DNS may say."""
    (ada,) = people(mlflow, "ada")
    token, search = mlflow.token(ada, "user-ada"), "mlflow/experiments/search?max_results=1"
    for host in ("localhost:38211", "127.0.0.1:5000", "mlflow.mlflow.svc"):
        assert mlflow.call(token, "user-ada", search, host=host)[0] == 200
    for host in ("page.example", "mlflow.mlflow.svc.page.example:5000"):
        assert mlflow.call(token, "user-ada", search, host=host)[0] == 403


def test_namespaces_of_nobody_are_no_workspaces(mlflow: Tracking) -> None:
    """Nor is there one for requests that name none."""
    (ada,) = people(mlflow, "ada")
    token = mlflow.token(ada, "user-ada")
    for workspace in ("mlflow", "kube-system", "nowhere", None):
        assert mlflow.call(token, workspace, "mlflow/experiments/search?max_results=1")[0] in (400, 403, 404)


def test_artifacts_are_kept_by_workspace_and_closed_to_others(mlflow: Tracking) -> None:
    ada, alan = people(mlflow, "ada", "alan")
    mine, other = mlflow.token(ada, "user-ada"), mlflow.token(alan, "user-alan")
    run = mlflow.run(mine, "user-ada")
    code, said = mlflow.call(mine, "user-ada", f"mlflow/runs/get?run_id={run}")
    uri = said["run"]["info"]["artifact_uri"]
    assert uri.startswith("mlflow-artifacts:/")
    path = f"mlflow-artifacts/artifacts/{uri.removeprefix('mlflow-artifacts:').lstrip('/')}/model.bin"
    assert mlflow.call(mine, "user-ada", path, b"weights", method="PUT")[0] == 200
    assert mlflow.call(mine, "user-ada", path) == (200, b"weights")
    assert mlflow.call(other, "user-ada", path)[0] == 403
    for data in (None, b"others"):
        code, said = mlflow.call(other, "user-alan", path, data, method="PUT" if data else "")
        assert (code, "user-alan" in said) == (400, True)
    assert mlflow.call(mine, "user-ada", path) == (200, b"weights")
    work = mlflow.cluster.storage.work
    assert work is not None
    s3 = boto3.client(
        "s3",
        region_name="us-east-1",
        endpoint_url=mlflow.environment["AWS_ENDPOINT_URL"],
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    listed = s3.list_objects_v2(Bucket=work.bucket, Prefix=f"{tracking.ARTIFACTS}/")["Contents"]
    keys = [each["Key"] for each in listed]
    assert all(key.startswith(f"{tracking.ARTIFACTS}/workspaces/user-ada/") for key in keys), keys


def test_its_pods_are_such_as_its_namespace_takes(mlflow: Tracking) -> None:
    """The API server's own admission: Pod Security, level restricted."""
    admin = mlflow.plane.admin
    stateful = found(admin, "apps/v1", "statefulsets", "database")["spec"]["template"]["spec"]
    stateful["volumes"].append({"name": "data", "emptyDir": {}})  # the claim's, as its controller adds it
    for spec in (pod_of(admin, "Deployment"), pod_of(admin, "CronJob"), stateful):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "mlflow"}}
        assert admin.create({**pod, "spec": spec}, dry=True)
        loose = {**spec, "securityContext": {}}
        with pytest.raises(RefusedError, match="restricted"):
            admin.create({**pod, "spec": loose}, dry=True)


def test_lists_of_what_nobody_may_have_are_empty(mlflow: Tracking) -> None:
    """MLflow's pages ask for them in one's own workspace, too."""
    (ada,) = people(mlflow, "ada")
    token = mlflow.token(ada, "user-ada")
    for path in ("mlflow/mcp-servers", "mlflow/mcp-servers/endpoints"):
        code, said = mlflow.call(token, "user-ada", f"/ajax-api/3.0/{path}")
        assert code == 200, (path, said)
        assert [each for each in said.values() if each] == [], (path, said)


def test_the_rest_of_mlflow_is_nobodys(mlflow: Tracking) -> None:
    (ada,) = people(mlflow, "ada")
    token = mlflow.token(ada, "user-ada")
    secret = {"secret_name": "key", "secret_value": {"api_key": "x"}, "provider": "openai"}
    code, said = mlflow.call(token, "user-ada", "3.0/mlflow/gateway/secrets/create", secret)
    assert code == 403, said


def test_the_account_may_nothing_else(mlflow: Tracking) -> None:
    def may(verb: str, group: str, resource: str, namespace: str, user: str = "") -> bool:
        attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
        groups = [] if user else ["system:serviceaccounts", "system:serviceaccounts:user-ada"]
        spec = {
            "user": user or f"system:serviceaccount:user-ada:{research.WORK}",
            "groups": ["system:authenticated", *groups],
            "resourceAttributes": attributes,
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(mlflow.plane.admin.call("POST", path, review)["status"]["allowed"])

    assert may("create", "mlflow.kubeflow.org", "experiments", "user-ada")
    assert not may("create", "mlflow.kubeflow.org", "experiments", "user-alan")
    assert not may("create", "mlflow.kubeflow.org", "mlflowconfigs", "user-ada")
    assert not may("get", "", "secrets", "user-ada")
    assert not may("list", "", "pods", "user-ada")
    assert not may("create", "", "serviceaccounts/token", "user-ada")
    # A person may go on to MLflow by a forwarded port, and sees nothing else there.
    assert may("list", "", "pods", "mlflow", "alan")
    assert not may("get", "", "secrets", "mlflow", "alan")
    assert not may("get", "", "pods", "mlflow")


def test_the_stock_client_needs_three_variables(mlflow: Tracking, tmp_path: Path) -> None:
    """Those that a run's proxy, or a person, sets."""
    (ada,) = people(mlflow, "ada")
    token = mlflow.token(ada, "user-ada")
    program = """
import mlflow
mlflow.set_experiment("stock")
with mlflow.start_run() as run:
    mlflow.log_params({"lr": 0.1})
    mlflow.log_metric("loss", 0.5, step=1)
    mlflow.log_text("hello", "notes.txt")
print(run.info.run_id, mlflow.artifacts.load_text(run.info.artifact_uri + "/notes.txt"))
"""
    environment = {
        "PATH": mlflow.environment["PATH"],
        "HOME": str(tmp_path),
        "MLFLOW_TRACKING_URI": mlflow.address,
        "MLFLOW_TRACKING_TOKEN": token,
        "MLFLOW_WORKSPACE": "user-ada",
    }
    words = [str(VENV / "bin/python"), "-c", program]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run, text = done.stdout.split()[-2:]
    assert text == "hello"
    code, said = mlflow.history(token, "user-ada", run, "loss")
    assert (code, [each["value"] for each in said["metrics"]]) == (200, [0.5])


# -- The nightly job ----------------------------------------------------------------------------------------


def test_metrics_of_old_runs_are_thinned_once(mlflow: Tracking) -> None:
    """2,500 points each: of one that ended 100 days ago, one that ended now, and one that has not ended."""
    (ada,) = people(mlflow, "ada")
    token = mlflow.token(ada, "user-ada")
    old, young, running_still = (mlflow.run(token, "user-ada") for _ in range(3))
    then = now() - 100 * DAY
    for run, ended in ((old, then), (young, now()), (running_still, None)):
        first = then if run == old else now()
        for start in range(0, 2500, 500):
            steps = range(start, start + 500)
            points = [
                {"key": key, "value": step, "timestamp": first + step, "step": step}
                for step in steps
                for key in (("loss", "rare") if step < 500 else ("loss",))
            ]
            code, said = mlflow.call(
                token, "user-ada", "mlflow/runs/log-batch", {"run_id": run, "metrics": points}
            )
            assert code == 200, said
        if ended is not None:
            change = {"run_id": run, "status": "FINISHED", "end_time": ended}
            assert mlflow.call(token, "user-ada", "mlflow/runs/update", change)[0] == 200

    def steps_of(run: str, key: str = "loss") -> list[int]:
        code, said = mlflow.history(token, "user-ada", run, key)
        assert code == 200, said
        return sorted(int(each["step"]) for each in said["metrics"])

    job = {**variables(mlflow.plane.admin, "CronJob", 0)}
    thinning = {name: job[name] for name in ("POINTS", "AFTER_DAYS", "MOST_ROWS")}
    done = mlflow.script("thin.py", **thinning)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"\d+", done.stdout)[:2] == ["1", "1500"], done.stdout
    kept = steps_of(old)
    assert (len(kept), kept[0], kept[-1]) == (1000, 0, 2499)
    assert max(after - before for before, after in itertools.pairwise(kept)) <= 3
    assert steps_of(old, "rare") == list(range(500))
    assert len(steps_of(young)) == len(steps_of(running_still)) == 2500
    again = mlflow.script("thin.py", **thinning)
    assert re.findall(r"\d+", again.stdout)[:2] == ["0", "0"], again.stdout
    # The run is resumed, logs, and is old again.
    later = [
        {"key": "loss", "value": 0, "timestamp": now() - 95 * DAY, "step": 2500 + step} for step in range(9)
    ]
    body = {"run_id": old, "metrics": later}
    assert mlflow.call(token, "user-ada", "mlflow/runs/log-batch", body)[0] == 200


def test_a_table_that_stays_large_fails_the_job(mlflow: Tracking) -> None:
    """Its exit code ends the job at once, and an alert speaks of failed jobs."""
    job = found(mlflow.plane.admin, "batch/v1", "cronjobs", "thin")["spec"]["jobTemplate"]["spec"]
    done = mlflow.script("thin.py", POINTS="1000", AFTER_DAYS="90", MOST_ROWS="10")
    assert done.returncode in job["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"]
    assert "lower kubernetes.tracking.thin_after_days" in done.stderr


# -- Who leaves: last, for the others stay ------------------------------------------------------------------


def test_who_leaves_a_group_or_the_lab_is_refused(mlflow: Tracking) -> None:
    (grace,) = people(mlflow, "grace")
    own = mlflow.token(grace, "user-grace")
    run = mlflow.run(own, "user-grace")
    unused = mlflow.token(grace, "user-grace")
    assert mlflow.token(grace, "team-researchers")
    # What `invoke cluster.up` does once she is not in the spec: bindings are without her, or gone.
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces"
    for name in ("members", "tracking", research.WORK):
        mlflow.plane.admin.call("DELETE", f"{rbac}/user-grace/rolebindings/{name}")
        binding = mlflow.plane.admin.call("GET", f"{rbac}/team-researchers/rolebindings/{name}")
        left = [each for each in binding["subjects"] if each["name"] != "grace"]
        assert len(left) < len(binding["subjects"])
        mlflow.plane.admin.call(
            "PATCH",
            f"{rbac}/team-researchers/rolebindings/{name}",
            {"subjects": left},
            "application/merge-patch+json",
        )

    until(lambda: refused(mlflow.token, grace, "team-researchers"))
    with pytest.raises(RefusedError, match="403"):
        mlflow.token(grace, "user-grace")
    # A token that she still has: at once where the server has not asked lately, else within a minute.
    assert mlflow.call(unused, "user-grace", f"mlflow/runs/get?run_id={run}")[0] == 403
