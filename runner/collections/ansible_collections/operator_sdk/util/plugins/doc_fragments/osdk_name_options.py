"""Documentation of the options that name one object."""

from __future__ import annotations


class ModuleDocFragment:
    """Used by `k8s_status`."""

    DOCUMENTATION = r"""
options:
  api_version:
    description: Group and version of the object, C(group/version), or C(v1) for the core group.
    type: str
    default: v1
    aliases: [api, version]
  kind:
    description: The object's kind. Its plural, singular or short name is accepted too.
    type: str
    required: true
  name:
    description: The object's name.
    type: str
    required: true
  namespace:
    description: The object's namespace. Omit it for a cluster-scoped object.
    type: str
"""
