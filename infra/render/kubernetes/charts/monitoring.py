"""Prometheus and Grafana (kube-prometheus-stack): metrics of all machines, alerts, dashboards.

None of them authenticates its users. So their pods accept connections only from each other, and users
connect by ``kubectl port-forward``: the API server decides who may (``grafana`` in ``addon_objects.py``),
and the connection starts inside the pod, where network policies do not apply.
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
"""The class of the volume of Prometheus, on the first master."""
STORAGE_SIZE: Final = "40Gi"
GRAFANA: Final = "grafana"
GRAFANA_POD: Final = f"{GRAFANA}-0"
"""The only pod of its StatefulSet; roles refer to it by name."""
GRAFANA_PORT: Final = 3000
ALERT_RECEIVERS: Final = "alert-receivers"
"""The Secret that ``invoke cluster.up`` creates: ``slack``, a token, and ``webhook``, a URL."""
_RECEIVERS: Final = "/etc/alertmanager/receivers"
"""The path where it is mounted."""
DASHBOARDS: Final = "grafana_dashboard"
"""The label with which Grafana finds dashboards."""
FOLDER: Final = "grafana_folder"
"""The annotation with the Grafana folder of a dashboard."""
NODE_PORT: Final = 9100
"""The port of the node exporter, which runs on every machine, also outside of the cluster: cookbook
``base``."""
DCGM_PORT: Final = 9400
"""The port of DCGM's exporter, the same on nodes and on machines outside of the cluster: cookbook ``gpu``."""

LABELS: Final = ("site", "pool", "capacity-type", "rack", "gpu-model", "gpu-family", "gpu-class", "gpu-count")
"""Node labels below ``causeway.dev/`` that metrics have."""


_DISABLED: Final = (
    # People's certificates live for hours, those of their programs for one: it would never be silent.
    "KubeClientCertificateExpiration",
    # They know nodes only; DiskMirrorDegraded is about every machine.
    "NodeRAIDDegraded",
    "NodeRAIDDiskFailure",
)
"""Alerts of the chart that are not wanted."""


def releases(cluster: Cluster) -> list[Release]:
    """The release, or nothing if Prometheus is disabled. Grafana is part of it, with the values of its own
    add-on."""
    grafana = cluster.kubernetes.addon("grafana")
    values = {
        "fullnameOverride": NAMESPACE,
        "crds": {"enabled": True},
        "defaultRules": {"disabled": dict.fromkeys(_DISABLED, True)},
        "prometheus": _prometheus(cluster),
        "alertmanager": _alertmanager(cluster),
        "grafana": _grafana() if grafana is not None else {"enabled": False},
        "prometheusOperator": {
            **ON_MASTERS,
            # The API server calls the webhook from a master's address in the pod network, which a policy
            # cannot select: this port, which serves only the webhook and the operator's metrics, is open to
            # all.
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
        # Machines have their own node exporter; the chart's rules and dashboards work with it.
        "nodeExporter": {"enabled": False, "forceDeployDashboards": True},
        "kubelet": {"serviceMonitor": {"insecureSkipVerify": False}},
        # They require tokens and have self-signed certificates.
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
            # Less than the volume's size: blocks are deleted only after new ones are written.
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
"""Kinds that are read in every namespace, regardless of the release."""


def _alertmanager(cluster: Cluster) -> Object:
    """The configuration of Alertmanager. Receivers read their secrets from files. The Secret is optional:
    without it, only the receivers fail."""
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
            # The chart's default receiver, for alerts without a route such as Watchdog, which always fires.
            "receivers": [{"name": "null"}, named],
            # `group`: an Auto Scaling group, which has a message of its own.
            "route": {"group_by": ["alertname", "group"], "routes": routes},
        },
        "alertmanagerSpec": {**spec, "volumes": [volume], "volumeMounts": [mount]},
    }


_SLACK_APP: Final[Object] = {
    "api_url": "https://slack.com/api/chat.postMessage",
    "http_config": {"authorization": {"credentials_file": f"{_RECEIVERS}/slack"}},
}
"""An app with a token, as https://prometheus.io/docs/alerting/latest/configuration/#slack_config has it."""
_ESCAPED: Final = ' | reReplaceAll "&" "&amp;" | reReplaceAll "<" "&lt;" | reReplaceAll ">" "&gt;"'
"""As https://docs.slack.dev/messaging/formatting-message-text has it: ``<`` begins a link or a mention."""
_SLACK_MESSAGE: Final[Object] = {
    "send_resolved": True,
    "title": "{{ .Status | toUpper }}: {{ .CommonLabels.alertname }} ({{ .CommonLabels.environment }})",
    "text": (
        f"{{{{ range .Alerts }}}}{{{{ .Annotations.summary{_ESCAPED} }}}}\n"
        f"{{{{ .Annotations.description{_ESCAPED} }}}}\n{{{{ end }}}}"
    ),
}


def _literal(text: str) -> str:
    """The text as a literal in a Go template."""
    return text.replace("{{", '{{ "{{" }}')


def _forwarded(port: int) -> str:
    """The URL at which ``kubectl port-forward`` serves it, for links in alerts."""
    return f"http://localhost:{port}/"


def _network_policy() -> Object:
    """Pods of the namespace accept connections from each other only."""
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
    """Scrapes the node exporter on every node, discovered from the API server."""
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
    """Scrapes targets that the API server does not know: machines outside of the cluster, and GPUs of nodes
    without pods."""
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
    """A named machine."""

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
        # The labels that metrics of nodes have, which alerts and dashboards use.
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
    """The values of Grafana. Everyone who can connect may view; dashboards are files and cannot be edited."""
    return {
        "enabled": True,
        "fullnameOverride": GRAFANA,
        # Its pod has a fixed name, so that a role can refer to it.
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
