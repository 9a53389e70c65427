"""Prometheus and Grafana (kube-prometheus-stack): every machine's figures, alerts, dashboards.

None of them asks who comes. So their pods accept connections from each other only, and people reach them by
``kubectl port-forward``: the API server decides who may (``grafana.py``), and the connection
starts inside the pod, where no network policy applies.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from infra.catalogue.labels import OURS
from infra.catalogue.roles import makes_node, runs_pods
from infra.model import Cluster
from infra.render.kubernetes.charts.release import ON_MASTERS, Release, merged, of
from infra.render.kubernetes.manifests import Object
from infra.render.kubernetes.pods import requests

NAMESPACE: Final = "monitoring"
STORAGE_CLASS: Final = "monitoring"
"""The class of the volume with Prometheus's figures, on the first master."""
STORAGE_SIZE: Final = "40Gi"
GRAFANA: Final = "grafana"
GRAFANA_POD: Final = f"{GRAFANA}-0"
"""The only one of its StatefulSet: rights name it."""
GRAFANA_PORT: Final = 3000
ALERT_RECEIVERS: Final = "alert-receivers"
"""The Secret that ``invoke cluster.up`` brings: ``slack``, a token, and ``webhook``, an address."""
_RECEIVERS: Final = "/etc/alertmanager/receivers"
"""Where it is mounted."""
DASHBOARDS: Final = "grafana_dashboard"
"""The label by which Grafana finds dashboards."""
FOLDER: Final = "grafana_folder"
"""The annotation that says in which of its folders one belongs."""
NODE_PORT: Final = 9100
"""Of the node exporter, which is on every machine, a node or not: cookbook ``base``."""
DCGM_PORT: Final = 9400
"""Of DCGM's exporter, on a node as on a machine without Kubernetes: cookbook ``gpu``."""

LABELS: Final = ("site", "pool", "capacity-type", "rack", "gpu-model", "gpu-family", "gpu-class", "gpu-count")
"""Labels of nodes, below ``causeway.dev/``, that figures can be told apart by."""


def releases(cluster: Cluster) -> list[Release]:
    """One, or none where Prometheus is off. Grafana is a part of it, with the values of its own add-on."""
    grafana = cluster.kubernetes.addon("grafana")
    values = {
        "fullnameOverride": NAMESPACE,
        "crds": {"enabled": True},
        # People's certificates live for hours, those of their programs for one: it would never be silent.
        "defaultRules": {"disabled": {"KubeClientCertificateExpiration": True}},
        "prometheus": _prometheus(cluster),
        "alertmanager": _alertmanager(cluster),
        "grafana": _grafana() if grafana is not None else {"enabled": False},
        "prometheusOperator": {
            **ON_MASTERS,
            # The API server asks its webhook, and comes from a master's address among pods, which no policy
            # can name: this port, where nothing is but the webhook and the operator's own figures, is open.
            "networkPolicy": {"enabled": True},
            "resources": requests("20m", "64Mi", limit="512Mi"),
            "admissionWebhooks": {"patch": {**ON_MASTERS}},
        },
        "kube-state-metrics": {
            "fullnameOverride": "kube-state-metrics",
            **ON_MASTERS,
            "metricLabelsAllowlist": [f"nodes=[{','.join(f'{OURS}/{label}' for label in LABELS)}]"],
            "resources": requests("20m", "96Mi", limit="2Gi"),
        },
        # Machines have one of their own; its rules and dashboards are good for those.
        "nodeExporter": {"enabled": False, "forceDeployDashboards": True},
        "kubelet": {"serviceMonitor": {"insecureSkipVerify": False}},
        # Behind tokens and certificates that they sign themselves.
        "kubeControllerManager": {"serviceMonitor": {"https": True, "insecureSkipVerify": True}},
        "kubeScheduler": {"serviceMonitor": {"https": True, "insecureSkipVerify": True}},
        "kubeEtcd": {"service": {"port": 2381, "targetPort": 2381}},
        # Helm installs it before the pods.
        "extraManifests": {"network-policy": _network_policy()},
    }
    ours = merged(values, {"grafana": dict(grafana.values)} if grafana is not None else {})
    return of(cluster, "prometheus", ours)


def _prometheus(cluster: Cluster) -> Object:
    everything = {f"{kind}SelectorNilUsesHelmValues": False for kind in _KINDS}
    return {
        "prometheusSpec": {
            "externalUrl": _forwarded(9090),
            **ON_MASTERS,
            **everything,
            "externalLabels": {"cluster": cluster.name, "environment": cluster.environment},
            "scrapeInterval": "30s",
            "evaluationInterval": "30s",
            "retention": "30d",
            # Less than the volume: blocks are thrown away only after new ones are written.
            "retentionSize": "32GB",
            "enableAdminAPI": False,
            "resources": requests("200m", "1Gi", limit="4Gi"),
            "storageSpec": {
                "volumeClaimTemplate": {
                    "spec": {
                        "storageClassName": STORAGE_CLASS,
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": STORAGE_SIZE}},
                    }
                }
            },
            "additionalScrapeConfigs": [_nodes(), *_hosts(cluster)],
        }
    }


_KINDS: Final = ("rule", "serviceMonitor", "podMonitor", "probe", "scrapeConfig")
"""What is found in every namespace, whoever installed it."""


def _alertmanager(cluster: Cluster) -> Object:
    """Receivers read their secrets from files. The Secret is optional: without it, only they fail."""
    spec = {
        "externalUrl": _forwarded(9093),
        **ON_MASTERS,
        "resources": requests("10m", "48Mi", limit="256Mi"),
    }
    alerts = cluster.kubernetes.alerts
    if not alerts.secrets:
        return {"alertmanagerSpec": spec}
    named: Object = {"name": "receivers"}
    slack = [_SLACK_APP | {"channel": _literal(alerts.slack)}] if alerts.slack else []
    slack += [{"api_url_file": f"{_RECEIVERS}/slack_webhook"}] if alerts.slack_webhook else []
    if slack:
        named["slack_configs"] = [{**_SLACK_MESSAGE, **each} for each in slack]
    if alerts.webhook:
        named["webhook_configs"] = [{"url_file": f"{_RECEIVERS}/webhook"}]
    routes = [{"receiver": "receivers", "matchers": ['severity =~ "warning|critical"']}]
    volume = {"name": "receivers", "secret": {"secretName": ALERT_RECEIVERS, "optional": True}}
    mount = {"name": "receivers", "mountPath": _RECEIVERS, "readOnly": True}
    return {
        "config": {
            # The chart's own receiver: for what no route takes, as Watchdog, which always fires.
            "receivers": [{"name": "null"}, named],
            "route": {"group_by": ["alertname"], "routes": routes},
        },
        "alertmanagerSpec": {**spec, "volumes": [volume], "volumeMounts": [mount]},
    }


_SLACK_APP: Final[Object] = {
    "api_url": "https://slack.com/api/chat.postMessage",
    "http_config": {"authorization": {"credentials_file": f"{_RECEIVERS}/slack"}},
}
"""An app with a token, as https://prometheus.io/docs/alerting/latest/configuration/#slack_config has it."""
_SLACK_MESSAGE: Final[Object] = {
    "send_resolved": True,
    "title": "{{ .Status | toUpper }}: {{ .CommonLabels.alertname }} ({{ .CommonLabels.environment }})",
    "text": "{{ range .Alerts }}{{ .Annotations.summary }}\n{{ .Annotations.description }}\n{{ end }}",
}


def _literal(text: str) -> str:
    """The text in a template of Go's."""
    return text.replace("{{", '{{ "{{" }}')


def _forwarded(port: int) -> str:
    """Where ``kubectl port-forward`` shows it: links in alerts lead there."""
    return f"http://localhost:{port}/"


def _network_policy() -> Object:
    """Each pod of the namespace is reached by the others, and by nobody else."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "default", "namespace": NAMESPACE},
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {}}]}],
        },
    }


def _nodes() -> Object:
    """The node exporter on every node, found by the API server."""
    kept = [
        {
            "source_labels": [f"__meta_kubernetes_node_label_causeway_dev_{label.replace('-', '_')}"],
            "target_label": label.replace("-", "_"),
        }
        for label in LABELS
    ]
    return {
        "job_name": "node-exporter",
        "kubernetes_sd_configs": [{"role": "node"}],
        "relabel_configs": [
            {
                "source_labels": ["__meta_kubernetes_node_address_InternalIP"],
                "target_label": "__address__",
                "replacement": f"$1:{NODE_PORT}",
            },
            {"source_labels": ["__meta_kubernetes_node_name"], "target_label": "node"},
            {"source_labels": ["__meta_kubernetes_node_name"], "target_label": "instance"},
            *kept,
        ],
    }


def _hosts(cluster: Cluster) -> list[Object]:
    """What the API server does not know: machines that are no nodes, and GPUs of those that run no pods."""
    racks = [
        _Host(site.name, node.fqdn, node.roles, node.gpus is not None)
        for site in cluster.sites
        for node in site.nodes
    ]
    cloud = [_Host(one.site, one.fqdn, (one.role,), one.gpus is not None) for one in cluster.instances]
    machines = [host for host in (*racks, *cloud) if not makes_node(host.roles)]
    gpus = [host for host in (*racks, *cloud) if host.gpus and not runs_pods(host.roles)]
    jobs = (("hosts", NODE_PORT, machines), ("hosts-gpus", DCGM_PORT, gpus))
    return [_static(job, port, hosts) for job, port, hosts in jobs if hosts]


class _Host(NamedTuple):
    """A machine with a name of its own."""

    site: str
    fqdn: str
    roles: tuple[str, ...]
    gpus: bool


def _static(job: str, port: int, hosts: list[_Host]) -> Object:
    groups: dict[str, list[str]] = {}
    for host in hosts:
        groups.setdefault(host.site, []).append(f"{host.fqdn}:{port}")
    return {
        "job_name": job,
        "static_configs": [
            {"labels": {"site": site}, "targets": targets} for site, targets in sorted(groups.items())
        ],
        # As figures of nodes have it, by which alerts and dashboards go.
        "relabel_configs": [
            {
                "source_labels": ["__address__"],
                "regex": r"([^.:]+).*",
                "target_label": label,
                "replacement": "$1",
            }
            for label in ("instance", "node")
        ],
    }


def _grafana() -> dict[str, Any]:
    """Everybody who gets here may look; dashboards are files, which nobody changes by the mouse."""
    return {
        "enabled": True,
        "fullnameOverride": GRAFANA,
        # Its pod keeps its name, so that a role can name it.
        "useStatefulSet": True,
        **ON_MASTERS,
        "resources": requests("50m", "128Mi", limit="512Mi"),
        "defaultDashboardsTimezone": "browser",
        "defaultDashboardsEditable": False,
        "rbac": {"namespaced": True},
        "grafana.ini": {
            "analytics": {
                "reporting_enabled": False,
                "check_for_updates": False,
                "check_for_plugin_updates": False,
            },
            "auth": {"disable_login_form": True},
            "auth.anonymous": {"enabled": True, "org_role": "Viewer", "hide_version": True},
            "users": {"viewers_can_edit": False, "default_theme": "system"},
            "news": {"news_feed_enabled": False},
        },
        "sidecar": {
            "dashboards": {
                "searchNamespace": NAMESPACE,
                "label": DASHBOARDS,
                "labelValue": "1",
                "folderAnnotation": FOLDER,
                "provider": {"foldersFromFilesStructure": True, "allowUiUpdates": False},
            },
            "datasources": {"searchNamespace": NAMESPACE},
            "resources": requests("5m", "80Mi", limit="256Mi"),
        },
        "serviceMonitor": {"enabled": True},
    }
