"""How the modules of this collection reach the API server.

Owns: the authentication options, their environment variables, and the order in which credentials are looked for.
"""

from __future__ import annotations

import base64
import traceback
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import env_fallback, missing_required_lib

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

try:
    from kubernetes import client, config
    from kubernetes.config.config_exception import ConfigException
except ImportError:
    IMPORT_ERROR = traceback.format_exc()
else:
    IMPORT_ERROR = ""


def _option(*variables: str, **spec: Any) -> dict[str, Any]:
    return {**spec, "fallback": (env_fallback, [f"K8S_AUTH_{name}" for name in variables])}


def auth_options() -> dict[str, Any]:
    """Return the argument spec of the authentication options; `osdk_auth_options` documents them."""
    return {
        "kubeconfig": _option("KUBECONFIG", type="path"),
        "context": _option("CONTEXT", type="str"),
        "host": _option("HOST", type="str"),
        "api_key": _option("API_KEY", type="str", no_log=True),
        "username": _option("USERNAME", type="str"),
        "password": _option("PASSWORD", type="str", no_log=True),
        "validate_certs": _option("VALIDATE_CERTS", "VERIFY_SSL", type="bool", aliases=["verify_ssl"]),
        "ca_cert": _option("CA_CERT", "SSL_CA_CERT", type="path", aliases=["ssl_ca_cert"]),
        "client_cert": _option("CLIENT_CERT", "CERT_FILE", type="path", aliases=["cert_file"]),
        "client_key": _option("CLIENT_KEY", "KEY_FILE", type="path", aliases=["key_file"]),
        "proxy": _option("PROXY", type="str"),
        "persist_config": _option("PERSIST_CONFIG", type="bool"),
    }


def connect(module: AnsibleModule) -> Any:
    """Return an `ApiClient` for the module's options; ends the module with a message when there is none."""
    if IMPORT_ERROR:
        module.fail_json(msg=missing_required_lib("kubernetes"), exception=IMPORT_ERROR)
    configuration = client.Configuration()
    try:
        _load(configuration, module.params)
    except (ConfigException, OSError) as error:
        module.fail_json(
            msg="No credentials for the API server: "
            f"{error}. Give kubeconfig, or host with api_key, or run in a pod that has a service account."
        )
    _override(configuration, module.params)
    return client.ApiClient(configuration)


def _load(configuration: Any, params: dict[str, Any]) -> None:
    def from_kubeconfig() -> None:
        config.load_kube_config(
            config_file=params["kubeconfig"],
            context=params["context"],
            client_configuration=configuration,
            persist_config=bool(params["persist_config"]),
        )

    if params["host"] and (params["api_key"] or (params["username"] and params["password"])):
        return
    if params["kubeconfig"] or params["context"]:
        from_kubeconfig()
        return
    try:
        config.load_incluster_config(client_configuration=configuration)
    except ConfigException:
        from_kubeconfig()


def _override(configuration: Any, params: dict[str, Any]) -> None:
    fields = {
        "host": params["host"],
        "verify_ssl": params["validate_certs"],
        "ssl_ca_cert": params["ca_cert"],
        "cert_file": params["client_cert"],
        "key_file": params["client_key"],
        "proxy": params["proxy"],
    }
    for name, value in fields.items():
        if value is not None:
            setattr(configuration, name, value)
    if params["api_key"]:
        configuration.api_key = {"authorization": f"Bearer {params['api_key']}"}
    elif params["username"] and params["password"]:
        # The client sends a user and password only where the API's own description asks for it, which Kubernetes'
        # does no more; the header is what a proxy in front of it reads.
        pair = f"{params['username']}:{params['password']}".encode()
        configuration.api_key = {"authorization": f"Basic {base64.b64encode(pair).decode()}"}
