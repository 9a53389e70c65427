"""What a client makes of a cluster's offer: the real one, rendered, and others a version older or newer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from golden_clusters import golden
from msgspec import structs

from causeway.checkpoints import Policy
from causeway.cluster import boards, sweeps
from causeway.cluster.fit import check_together, fit
from causeway.cluster.jobset import Submission, jobset
from causeway.cluster.offer import VERSION, Dashboards, Offer, Tracking, mounts_of, parse
from causeway.errors import CausewayError, InputError
from causeway.job import Job
from causeway.tracking.record import Record
from causeway.workers import workers_of
from infra.render.kubernetes import addon_objects, research


def written() -> dict[str, Any]:
    """``cluster.json`` of the golden ``research``."""
    documents = research.objects(golden("research"))["cluster.yaml"]
    found: dict[str, Any] = json.loads(documents[0]["data"]["cluster.json"])
    return found


def offer(**more: Any) -> Offer:
    return parse({**written(), **more})


def job(**fields: Any) -> Job:
    return Job.model_validate({"name": "x", "run": "python t.py", **fields})


def places(made: Job, of: Offer) -> set[str]:
    return {machine.site for machine in fit(made, workers_of(made)[0], of).machines}


def submission(made: Job, found: Offer, code: str = "") -> Submission:
    fits = [fit(made, each, found) for each in workers_of(made)]
    return Submission("x-1", "user-ada", "ada", made, fits, found, code)


def template_of(made: Job, found: Offer, code: str = "") -> dict[str, Any]:
    """The template of the first role's pods."""
    template: dict[str, Any] = jobset(submission(made, found, code))["spec"]["replicatedJobs"][0]["template"]
    pod: dict[str, Any] = template["spec"]["template"]
    return pod


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in container["env"]}


def test_pods_of_all_kinds_have_what_is_mounted_alone_and_text_as_it_is() -> None:
    found = offer()
    tracking = Tracking("$(HOME)", "tracking", "mlflow", 80)
    made = {
        "run": template_of(job(env={"A": "$(HOME)"}), found),
        "board": boards.job("user-ada", {"x-1": "main-0"}, found, "$(HOME)")["spec"]["template"],
        "search": sweeps.conductor("user-ada", "s", "1", "ada", found, tracking)["spec"]["template"],
    }
    names = {"run": "A", "board": "CAUSEWAY_BOARD_PATH", "search": "CAUSEWAY_TRACKING_URI"}
    for kind, template in made.items():
        assert template["spec"]["automountServiceAccountToken"] is False, kind
        assert template["spec"]["enableServiceLinks"] is False, kind
        (container,) = template["spec"]["containers"]
        assert variables(container)[names[kind]] == "$$(HOME)", kind


def test_both_sides_speak_of_the_same_version() -> None:
    assert research.VERSION == VERSION
    assert offer().note == ""


def test_a_newer_cluster_is_read_and_said_and_a_much_newer_one_is_refused() -> None:
    assert "newer" in offer(version=VERSION + 1, something="new").note
    with pytest.raises(CausewayError):
        offer(version=VERSION + 2)
    with pytest.raises(CausewayError):
        parse({**written(), "machines": 1})


NEEDED = {"version", "cluster", "images", "default_image", "store", "machines"}


@pytest.mark.parametrize("field", sorted(written()))
def test_a_cluster_that_is_older_offers_less_or_is_said_to_lack_it(field: str) -> None:
    older = written()
    del older[field]
    if field in NEEDED:
        with pytest.raises(CausewayError) as raised:
            parse(older)
        assert field == "version" or f"'{field}'" in str(raised.value)
        return
    found = parse(older)
    assert {*found.sites} == {each.site for each in found.machines} or field != "sites"
    assert jobset(submission(job(), found, "0" * 64))["kind"] == "JobSet", "what is left runs"


def test_grafana_is_where_the_cluster_says() -> None:
    assert offer().dashboards == Dashboards("monitoring", "grafana-0", 3000)
    older = written()
    del older["dashboards"]
    assert parse(older).dashboards is None
    cluster = golden("research")
    others = tuple(each for each in cluster.kubernetes.addons if each.name != "grafana")
    without = structs.replace(cluster, kubernetes=structs.replace(cluster.kubernetes, addons=others))
    assert without.research is not None
    assert parse(research.contract(without, without.research)).dashboards is None
    assert addon_objects.grafana(without) == {}


def test_a_run_is_recorded_where_the_cluster_has_mlflow() -> None:
    """Only the sidecar has the token, and the program knows no more than where the sidecar is."""
    url = "http://mlflow.mlflow.svc:5000"
    values = {"url": url, "namespace": "mlflow", "service": "mlflow", "port": 5000}
    made = job(run="python t.py --cost '$5'", gpus=0)
    older = {name: value for name, value in written().items() if name != "tracking"}
    for found in (parse({**older, "tracking": values}), parse({**older, "tracking": None}), parse(older)):
        pod = template_of(made, found)["spec"]
        keep, main = pod["initContainers"][-1], pod["containers"][0]
        mounts = [{each["name"] for each in container["volumeMounts"]} for container in (keep, main)]
        environments = [variables(container) for container in (keep, main)]
        if found.tracking is None:
            assert "tracking" not in mounts[0]
            assert "CAUSEWAY_TRACKING_URI" not in environments[1]
            continue
        assert ("tracking" in mounts[0], "tracking" in mounts[1]) == (True, False)
        assert environments[1]["CAUSEWAY_TRACKING_URI"] == "http://127.0.0.1:5757"
        # An image whose sidecar does not listen has a runtime that sets none of these.
        assert not [name for name in environments[1] if name.startswith("MLFLOW_")]
        record = Record.of(environments[0]["CAUSEWAY_TRACKING"].replace("$$", "$"))
        assert (record.url, record.workspace, record.experiment) == (url, "user-ada", "x")
        assert record.parameters["job.run"] == "python t.py --cost '$5'"
        assert record.places["rack-a"].least == 0
        assert record.tags["causeway.image"]


def test_what_all_sites_have_is_mounted_and_what_some_have_is_asked_for() -> None:
    values = written()
    values["mounts"]["results"]["sites"] = ["rack-a", "us-west-2"]
    found = parse(values)

    def paths(made: Job, namespace: str = "user-ada") -> set[str]:
        return {path for _, path in mounts_of(made, namespace, found)}

    assert paths(job()) == {"/home/ada", "/data"}
    assert paths(job(mounts={"home": False, "results": True})) == {"/data", "/results"}
    assert paths(job(), "team-engineers") == {"/data"}
    assert places(job(mounts={"results": True}), found) == {"rack-a", "us-west-2"}
    with pytest.raises(InputError) as raised:
        mounts_of(job(mounts={"attic": True}), "user-ada", found)
    assert raised.value.problems[0].field == "mounts.attic"


def test_checkpoints_go_where_the_job_says() -> None:
    values = written()
    values["mounts"]["results"]["sites"] = ["rack-a", "us-west-2"]
    found = parse(values)
    made = job(checkpoints={"path": "/ckpt", "sync": "10m", "volume": "results"})
    pod = template_of(made, found)["spec"]
    ours = {each["name"]: each for each in (*pod["initContainers"], *pod["containers"])}
    env = {name: variables(container) for name, container in ours.items()}
    assert env["main"]["CAUSEWAY_CHECKPOINTS"] == "/ckpt"
    own = {"name": "causeway", "mountPath": "/ckpt", "subPath": "checkpoints"}
    assert own in ours["main"]["volumeMounts"]
    for name in ("code", "keep"):
        assert env[name]["CAUSEWAY_CHECKPOINTS_VOLUME"] == "/results/causeway-user-ada"
        assert {"name": "results", "mountPath": "/results"} in ours[name]["volumeMounts"]
        assert Policy.of(env[name]["CAUSEWAY_POLICY"]).every == 600
    claim = {"claimName": "results", "readOnly": False}
    assert {"name": "results", "persistentVolumeClaim": claim} in pod["volumes"]
    assert places(job(checkpoints={"volume": "results"}), found) == {"rack-a", "us-west-2"}
    plain = template_of(job(checkpoints={"path": "out/ckpt", "sync": False}), found)["spec"]
    fetch = variables(plain["initContainers"][0])
    assert (fetch["CAUSEWAY_CHECKPOINTS_PATH"], "CAUSEWAY_CHECKPOINTS_VOLUME" in fetch) == ("out/ckpt", False)
    assert Policy.of(fetch["CAUSEWAY_POLICY"]).workers == ()


@pytest.mark.parametrize(
    ("checkpoints", "field"),
    [
        ({"volume": "attic"}, "checkpoints.volume"),
        ({"volume": "data"}, "checkpoints.volume"),
        ({"path": "/home/ada/ckpt"}, "checkpoints.path"),
    ],
)
def test_where_checkpoints_can_not_be(checkpoints: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as raised:
        mounts_of(job(checkpoints=checkpoints), "user-ada", offer())
    assert [each.field for each in raised.value.problems] == [field]


def test_the_priority_says_which_gpus() -> None:
    found = offer()
    assert places(job(priority="low"), found) >= {"rack-a", "rack-b"}
    assert not places(job(priority="high"), found) & {"rack-a", "rack-b"}


def test_the_share_of_a_gpu_fits_every_machine_that_may_run_it() -> None:
    found = offer()
    made = job(gpus={"count": 2})
    result = fit(made, workers_of(made)[0], found)
    assert result.machines
    for machine in result.machines:
        assert machine.gpus is not None
        room = machine.gpus.count // 2
        assert room * result.cpus * 1000 <= machine.cpu_milli
        assert room * result.memory <= machine.memory_mib << 20


def expressions(made: Job) -> list[dict[str, Any]]:
    pod = template_of(made, offer())["spec"]
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms: list[dict[str, Any]] = required["nodeSelectorTerms"]
    assert len(terms) == 1
    return list(terms[0]["matchExpressions"])


def test_what_a_job_says_of_machines_is_what_the_scheduler_is_told() -> None:
    made = job(gpus={"count": 1, "memory": "10.5 GiB"}, where={"sites": ["us-west-2"], "spot": False})
    assert expressions(made) == [
        {"key": "causeway.dev/site", "operator": "In", "values": ["us-west-2"]},
        {"key": "causeway.dev/capacity-type", "operator": "NotIn", "values": ["spot", "mixed"]},
        {"key": "causeway.dev/gpu-memory-mib", "operator": "Gt", "values": ["10751"]},
    ]
    # The labels are those of the nodes.
    pools = {pool.name: pool.groups[0].labels for pool in golden("research").pools}
    v100 = pools["gpu-p3"]
    assert (v100["causeway.dev/capacity-type"], v100["causeway.dev/gpu-memory-mib"]) == ("mixed", "16384")
    assert {each.pool for each in offer().machines if each.is_spot} == {
        name for name, labels in pools.items() if labels["causeway.dev/capacity-type"] in ("spot", "mixed")
    }


def test_the_code_is_fetched_in_the_stores_region() -> None:
    """botocore reads AWS_DEFAULT_REGION, other SDKs AWS_REGION."""
    found = offer()
    env = variables(template_of(job(), found, "0123")["spec"]["initContainers"][0])
    assert env["AWS_DEFAULT_REGION"] == env["AWS_REGION"] == found.store.region


def test_asking_for_more_memory_leaves_out_smaller_machines() -> None:
    found = offer()
    small, large = job(), job(memory="230 GiB")
    assert len(fit(large, workers_of(large)[0], found).machines) < len(
        fit(small, workers_of(small)[0], found).machines
    )
    with pytest.raises(InputError):
        fit(small, workers_of(small)[0], replace(found, machines=[]))


def problem(made: Job, found: Offer) -> str:
    """The field of the one that keeps it from being submitted."""
    with pytest.raises(InputError) as raised:
        check_together(made, [fit(made, each, found) for each in workers_of(made)])
    (only,) = raised.value.problems
    return only.field


def small() -> Offer:
    """Two machines of four GPUs, 40 processors and 200 GiB each, and one of 64 processors without."""
    machine = replace(
        next(each for each in offer().machines if each.gpus and each.gpus.gpu_class == "old"),
        cpu_milli=40_000, memory_mib=200 << 10,
    )  # fmt: skip
    assert machine.gpus is not None
    gpus = replace(machine, count=2, gpus=replace(machine.gpus, count=4))
    plain = replace(machine, site="us-west-2", count=1, cpu_milli=64_000, gpus=None)
    return replace(offer(), machines=[gpus, plain], default_priority="low")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"nodes": 8}, None),
        ({"nodes": 9}, "nodes"),
        ({"nodes": 3, "gpus": 3}, "nodes"),
        ({"nodes": 50}, "nodes"),
        ({"nodes": 1001, "gpus": 0}, "nodes"),
        ({"nodes": 3, "cpus": 30}, "nodes"),
        ({"nodes": 4, "where": {"near": "host"}}, None),
        ({"nodes": 5, "where": {"near": "host"}}, "nodes"),
        ({"nodes": 60, "gpus": 0, "cpus": 1, "memory": "1 GiB"}, None),
        ({"nodes": 90, "gpus": 0, "cpus": 1, "memory": "1 GiB", "where": {"near": "site"}}, "nodes"),
        ({"roles": {"worker": 6, "ps": 3}, "launcher": "none"}, "roles"),
        ({"roles": {"worker": 6, "ps": {"count": 3, "gpus": 0}}, "launcher": "none"}, None),
        ({"roles": {"worker": 9}, "launcher": "none"}, "roles.worker.count"),
    ],
)
def test_more_than_all_machines_have_room_for_names_its_field(
    fields: dict[str, Any], field: str | None
) -> None:
    made, found = job(**fields), small()
    if field is None:
        check_together(made, [fit(made, each, found) for each in workers_of(made)])
    else:
        assert problem(made, found) == field


@pytest.mark.parametrize(
    ("most", "role", "count"),
    [(41, "worker", 1), (41, "worker", 10), (40, "worker", 11), (38, "evaluator", 1)],
)
def test_names_of_pods_are_as_long_as_jobset_admits(most: int, role: str, count: int) -> None:
    """Those of run 9999: 63 characters, with what Kubernetes adds."""

    def named(length: int) -> Job:
        return job(name="x" * length, roles={role: count}, gpus=0, launcher="none")

    made, found = named(most), offer()
    run = replace(submission(made, found), run=f"{made.name}-9999")
    check_together(made, run.fits)
    hosts = run.hosts[role]
    assert len(hosts[-1].partition(".")[0] + "-abcde") == 63
    assert problem(named(most + 1), found) == "name"


def test_shared_memory_is_a_part_of_the_memory_that_goes_with_the_gpus() -> None:
    made, found = job(shm="150 GiB"), small()
    with pytest.raises(InputError) as raised:
        fit(made, workers_of(made)[0], found)
    assert raised.value.problems[0].field == "shm"
    more = job(shm="150 GiB", memory="160 GiB")
    assert fit(more, workers_of(more)[0], found).machines


def test_a_worker_gets_the_adapters_and_huge_pages_that_go_with_its_gpus() -> None:
    def main(**fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        template = template_of(job(**fields), found)
        return template, template["spec"]["containers"][0]

    def limits(**gpus: Any) -> dict[str, str]:
        _, container = main(nodes=2, priority="high", gpus={"interconnect": "efa", **gpus})
        return dict(container["resources"]["limits"])

    found = offer()
    whole = limits(count=8, model="h100")
    assert (whole["vpc.amazonaws.com/efa"], whole["hugepages-2Mi"]) == ("32", "10256Mi")
    half = limits(count=4, model="a100-40gb")
    assert (half["vpc.amazonaws.com/efa"], half["hugepages-2Mi"]) == ("2", "5128Mi")
    one = limits(count=1, model="a100-40gb")
    assert (one["vpc.amazonaws.com/efa"], one["hugepages-2Mi"]) == ("1", "1282Mi")
    assert {"vpc.amazonaws.com/efa", "hugepages-2Mi"} & {*limits(count=0)} == set()
    # Of several kinds of machines what all of them have.
    assert limits(count=8)["vpc.amazonaws.com/efa"] == "4"

    template, container = main(nodes=2, priority="high", gpus={"count": 8, "interconnect": "efa"})
    env = variables(container)
    assert (env["FI_PROVIDER"], env["CAUSEWAY_EFA"]) == ("efa", "4")
    topology = "kueue.x-k8s.io/podset-required-topology"
    assert template["metadata"]["annotations"] == {topology: "topology.kubernetes.io/zone"}
    others = template["spec"]["initContainers"]
    assert not [each for each in others if "vpc.amazonaws.com/efa" in each["resources"].get("limits", {})]

    template, container = main(nodes=2, priority="high", gpus={"count": 8, "model": "h100"})
    assert {"vpc.amazonaws.com/efa", "hugepages-2Mi"} & {*container["resources"]["limits"]} == set()
    assert "FI_PROVIDER" not in variables(container)
    assert "annotations" not in template["metadata"]


def selector(found: Offer, **gpus: Any) -> dict[str, str]:
    pod = template_of(job(priority="high", gpus=gpus), found)["spec"]
    return dict(pod.get("nodeSelector", {}))


def test_gpus_that_are_joined_within_a_machine_are_found_where_there_are_adapters_too() -> None:
    found = offer()
    asked = selector(found, count=8, interconnect="nvswitch")
    assert asked == {"causeway.dev/interconnect": "nvswitch"}
    assert selector(found, count=8, interconnect="efa") == {"causeway.dev/efa": "true"}
    pools = {pool.name: pool.groups[0].labels for pool in golden("research").pools if pool.efa_interfaces}
    made = job(priority="high", gpus={"count": 8, "interconnect": "nvswitch"})
    machines = fit(made, workers_of(made)[0], found).machines
    assert {each.pool for each in machines} >= {*pools} == {"gpu-p4d", "gpu-p5"}
    for labels in pools.values():
        assert {"causeway.dev/interconnect": "nvswitch", "causeway.dev/efa": "true"}.items() <= labels.items()


def test_of_a_cluster_of_version_1_efa_is_asked_for_by_the_label_that_it_has() -> None:
    older = written() | {"version": 1}
    for machine in older["machines"]:
        if "efa" in machine:
            machine["gpus"]["interconnect"] = "efa"
    assert selector(parse(older), count=8, interconnect="efa") == {"causeway.dev/interconnect": "efa"}


def test_a_cluster_that_offers_no_adapters_is_not_asked_for_them() -> None:
    older = written()
    for machine in older["machines"]:
        machine.pop("efa", None)
    made = job(nodes=2, priority="high", gpus={"count": 8, "interconnect": "efa"})
    with pytest.raises(InputError) as raised:
        fit(made, workers_of(made)[0], parse(older))
    assert raised.value.problems[0].field == "gpus.interconnect"
