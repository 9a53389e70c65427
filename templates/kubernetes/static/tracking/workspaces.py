"""MLflow's app ``workspaces``: the plugin ``kubernetes-auth``, with rights on whole workspaces only.

The plugin knows rights on single experiments and models. So it answers everybody's search, and takes out of
the page what they may not see: an empty one is left, and the token of the next. Here rights are on all of a
workspace or on nothing in it, and a person without them is refused (403), as everywhere else.
"""

from mlflow_kubernetes_plugins.auth import create_app as app_of_plugin
from mlflow_kubernetes_plugins.auth import graphql, rules
from mlflow_kubernetes_plugins.auth.collection_filters import COLLECTION_POLICY_BROAD_ONLY
from mlflow_kubernetes_plugins.auth.constants import (
    RESOURCE_DATASETS,
    RESOURCE_EXPERIMENTS,
    RESOURCE_REGISTERED_MODELS,
)

# People have rights on these. Of the rest nobody has anything, and MLflow's pages want its empty lists.
_RIGHTS = (RESOURCE_EXPERIMENTS, RESOURCE_REGISTERED_MODELS, RESOURCE_DATASETS)


def create_app(app=None):
    for table in (rules.REQUEST_AUTHORIZATION_RULES, rules.PATH_AUTHORIZATION_RULES):
        for key, value in table.items():
            table[key] = tuple(_of_workspace(each) for each in rules._normalize_rules(value))
    fields = graphql.GRAPHQL_FIELD_AUTH_POLICY_MAP
    filtered = (
        graphql.GRAPHQL_FIELD_AUTH_POLICY_REQUEST_FILTER,
        graphql.GRAPHQL_FIELD_AUTH_POLICY_RESPONSE_FILTER,
    )
    fields.update(
        {
            field: graphql.GRAPHQL_FIELD_AUTH_POLICY_BROAD_ONLY
            for field, policy in fields.items()
            if policy in filtered
        }
    )
    return app_of_plugin(app)


def _of_workspace(rule):
    if rule.collection_policy and rule.resource in _RIGHTS:
        return rule._replace(collection_policy=COLLECTION_POLICY_BROAD_ONLY)
    return rule
