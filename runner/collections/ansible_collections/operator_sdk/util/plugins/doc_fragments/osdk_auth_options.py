"""Documentation of the options for the API server and its credentials."""

from __future__ import annotations


class ModuleDocFragment:
    """Shared by `k8s_status` and `k8s_event`."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description:
      - Path of a kubeconfig. Also E(K8S_AUTH_KUBECONFIG).
      - Without it, O(context) and O(host), the module uses the pod's service account. Outside of a pod, it uses the
        kubeconfig that C(kubectl) uses.
    type: path
  context:
    description: The kubeconfig's context to use. Also E(K8S_AUTH_CONTEXT).
    type: str
  host:
    description: URL of the API server. Also E(K8S_AUTH_HOST).
    type: str
  api_key:
    description: Bearer token. Also E(K8S_AUTH_API_KEY).
    type: str
  username:
    description: User for basic authentication, which some proxies require. Also E(K8S_AUTH_USERNAME).
    type: str
  password:
    description: Password of O(username). Also E(K8S_AUTH_PASSWORD).
    type: str
  validate_certs:
    description: Verify the server's certificate. Also E(K8S_AUTH_VERIFY_SSL).
    type: bool
    aliases: [verify_ssl]
  ca_cert:
    description: Path of the certificate authorities of the server. Also E(K8S_AUTH_SSL_CA_CERT).
    type: path
    aliases: [ssl_ca_cert]
  client_cert:
    description: Path of a client certificate. Also E(K8S_AUTH_CERT_FILE).
    type: path
    aliases: [cert_file]
  client_key:
    description: Path of the key of O(client_cert). Also E(K8S_AUTH_KEY_FILE).
    type: path
    aliases: [key_file]
  proxy:
    description: URL of an HTTP proxy in front of the API server. Also E(K8S_AUTH_PROXY).
    type: str
  persist_config:
    description:
      - Write refreshed credentials back to the kubeconfig. Also E(K8S_AUTH_PERSIST_CONFIG).
    type: bool
requirements:
  - kubernetes >= 24.2.0
"""
