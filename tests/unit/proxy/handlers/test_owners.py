"""What becomes of a definition that a run sends: whose it is afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.kube.discovery import ApiResource
from runner.core.proxy.handlers.owners import (
    ADOPT,
    INJECT_OWNER,
    OwnerMark,
    adopt,
    give_up,
    own,
    wants_release,
)
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef, Owner, OwnerClaim, claims_of, references_of

CR = Owner(
    ObjectRef(GVK("cache.example.com", "v1alpha1", "Memcached"), ObjectKey("shop", "mc"), "uid-mc"), namespaced=True
)
CLUSTER_CR = Owner(
    ObjectRef(GVK("infra.example.com", "v1", "Fleet"), ObjectKey("", "fleet"), "uid-fleet"), namespaced=False
)
CORE_CR = Owner(ObjectRef(GVK("", "v1", "ConfigMap"), ObjectKey("shop", "settings"), "uid-settings"), namespaced=True)
VERBS = frozenset({"get", "list", "watch", "create", "update", "patch", "delete"})


def resource_of(
    group: str, kind: str, plural: str, *, namespaced: bool = True, verbs: frozenset[str] = VERBS
) -> ApiResource:
    return ApiResource(GVK(group, "v1", kind), plural, namespaced=namespaced, verbs=verbs, subresources=frozenset())


CONFIG_MAP = resource_of("", "ConfigMap", "configmaps")
CLUSTER_ROLE = resource_of("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", namespaced=False)
REVIEW = resource_of(
    "authentication.k8s.io", "TokenReview", "tokenreviews", namespaced=False, verbs=frozenset({"create"})
)
REFERENCE = {"apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached", "name": "mc", "uid": "uid-mc"}
FOREIGN = {"apiVersion": "example.com/v1", "kind": "Other", "name": "other", "uid": "uid-other"}
ANNOTATIONS = {
    "operator-sdk/primary-resource": "shop/mc",
    "operator-sdk/primary-resource-type": "Memcached.cache.example.com",
}


def config_map(**meta: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **meta}, "data": {"a": "b"}}


REFERRED, ANNOTATED, NOT_OWNED = OwnerMark.REFERENCE, OwnerMark.ANNOTATION, OwnerMark.NONE
OF_CORE = {"operator-sdk/primary-resource": "shop/settings", "operator-sdk/primary-resource-type": "ConfigMap"}
OF_FLEET = {"ownerReferences": [CLUSTER_CR.reference()]}
CONTROLLED = {"ownerReferences": [{**FOREIGN, "controller": True}]}
OF_ANOTHER = {"annotations": {**ANNOTATIONS, "operator-sdk/primary-resource": "shop/another"}}
OF_ANOTHER_KIND = {"annotations": {**ANNOTATIONS, "operator-sdk/primary-resource-type": "Other.example.com"}}
OPTED_OUT = {"annotations": {INJECT_OWNER: "false"}}
NOTED = {"annotations": {"mine": "stays"}}
CREATIONS: dict[str, tuple[Object, Owner, ApiResource, str, OwnerMark, Object]] = {
    "a reference of four fields": ({}, CR, CONFIG_MAP, "shop", REFERRED, {"ownerReferences": [REFERENCE]}),
    "the namespace of the definition": (
        *({"namespace": "shop"}, CR, CONFIG_MAP, "", REFERRED),
        {"namespace": "shop", "ownerReferences": [REFERENCE]},
    ),
    "another namespace of the definition": (
        *({"namespace": "other"}, CR, CONFIG_MAP, "", ANNOTATED),
        {"namespace": "other", "annotations": ANNOTATIONS},
    ),
    "another namespace": (
        *(NOTED, CR, CONFIG_MAP, "other", ANNOTATED),
        {"annotations": {"mine": "stays", **ANNOTATIONS}},
    ),
    "a cluster-scoped owner": ({}, CLUSTER_CR, CONFIG_MAP, "x", REFERRED, OF_FLEET),
    "a cluster-scoped owner and object": ({}, CLUSTER_CR, CLUSTER_ROLE, "", REFERRED, OF_FLEET),
    "an owner of the core group": ({}, CORE_CR, CONFIG_MAP, "other", ANNOTATED, {"annotations": OF_CORE}),
    "a second owner": (
        *({"ownerReferences": [FOREIGN]}, CR, CONFIG_MAP, "shop", REFERRED),
        {"ownerReferences": [FOREIGN, REFERENCE]},
    ),
    "an object with a controller": (CONTROLLED, CR, CONFIG_MAP, "shop", NOT_OWNED, CONTROLLED),
    "an object of another owner": (OF_ANOTHER, CR, CONFIG_MAP, "shop", NOT_OWNED, OF_ANOTHER),
    "an object of an owner of another kind": (OF_ANOTHER_KIND, CR, CONFIG_MAP, "shop", NOT_OWNED, OF_ANOTHER_KIND),
    "an annotation that opts out": (OPTED_OUT, CR, CONFIG_MAP, "shop", NOT_OWNED, OPTED_OUT),
}


@pytest.mark.parametrize(("meta", "owner", "resource", "namespace", "how", "after"), CREATIONS.values(), ids=CREATIONS)
def test_a_created_object_gets_its_owner_once(
    meta: Object, owner: Owner, resource: ApiResource, namespace: str, how: OwnerMark, after: Object
) -> None:
    definition = config_map(**meta)
    owned = own(definition, owner, resource, namespace)
    assert (owned.how, owned.obj) == (how, config_map(**after))
    assert definition == config_map(**meta), "the definition is not written to"
    again = own(owned.obj, owner, resource, namespace)
    assert again.obj is owned.obj
    assert again.how is how


@pytest.mark.parametrize("namespace", ["shop", "other"])
def test_what_a_finalizer_creates_gets_no_owner_that_is_being_deleted(namespace: str) -> None:
    leaving = replace(CR, is_deleting=True)
    definitions = {"kind": "ConfigMapList", "items": [config_map(), config_map(ownerReferences=[FOREIGN])]}
    for definition in (config_map(), config_map(generateName="backup-"), definitions):
        owned = own(definition, leaving, CONFIG_MAP, namespace)
        assert (owned.obj, owned.how) == (definition, OwnerMark.NONE)


def test_a_finalizer_adopts_nothing_and_takes_no_owner_from_an_existing_object() -> None:
    leaving, wanted = replace(CR, is_deleting=True), config_map(annotations={ADOPT: "true"})
    assert own(wanted, leaving, CONFIG_MAP, "shop", current=config_map()).how is OwnerMark.NONE
    assert adopt(wanted, leaving, CONFIG_MAP, "shop", config_map()).obj is wanted
    owned = config_map(ownerReferences=[REFERENCE])
    kept = own(config_map(), leaving, CONFIG_MAP, "shop", current=owned)
    assert references_of(kept.obj) == [REFERENCE]


def test_virtual_resources_are_never_touched() -> None:
    review = {"kind": "TokenReview", "spec": {"token": "t"}}
    assert own(review, CLUSTER_CR, REVIEW, "").obj is review
    assert adopt(review, CLUSTER_CR, REVIEW, "", {}).obj is review


@pytest.mark.parametrize("meta", [{}, {"metadata": None}, {"metadata": {"ownerReferences": None, "annotations": None}}])
@pytest.mark.parametrize("namespace", ["shop", "other"])
def test_metadata_may_be_missing(meta: dict[str, Any], namespace: str) -> None:
    assert own({"kind": "ConfigMap", **meta}, CR, CONFIG_MAP, namespace).how is not OwnerMark.NONE


def test_each_item_of_a_list_is_owned() -> None:
    definition = {"kind": "List", "items": [config_map(), config_map(annotations={INJECT_OWNER: "false"}), "odd"]}
    owned = own(definition, CR, CONFIG_MAP, "shop")
    first, second, third = owned.obj["items"]
    assert references_of(first) == [REFERENCE]
    assert second is definition["items"][1]
    assert third == "odd"
    assert own(owned.obj, CR, CONFIG_MAP, "shop").obj is owned.obj


def test_a_kind_that_is_called_a_list_is_an_object_like_others() -> None:
    allow_list = replace(CONFIG_MAP, gvk=GVK("net.example.com", "v1", "AllowList"))
    definition = {"kind": "AllowList", "items": [{"cidr": "10.0.0.0/8"}]}
    assert references_of(own(definition, CR, allow_list, "shop").obj) == [REFERENCE]


def test_an_update_that_names_owners_keeps_the_reference_of_the_proxy() -> None:
    current = config_map(ownerReferences=[{**FOREIGN, "uid": "uid-old"}, REFERENCE])
    kept = own(config_map(ownerReferences=[FOREIGN]), CR, CONFIG_MAP, "shop", current=current)
    assert references_of(kept.obj) == [FOREIGN, REFERENCE]


def test_an_update_that_opts_out_gives_the_object_up() -> None:
    definition = config_map(annotations={INJECT_OWNER: "false"})
    current = config_map(ownerReferences=[REFERENCE])
    assert own(definition, CR, CONFIG_MAP, "shop", current=current).obj is definition


def applied(*managers: tuple[str, Object], **meta: Any) -> Object:
    """Return an object whose fields of owners were applied by these managers, each with its part of the metadata."""
    entries = [
        {
            "manager": manager,
            "operation": "Apply",
            "fieldsV1": {
                "f:metadata": {
                    "f:ownerReferences": {
                        f'k:{{"uid":"{each["uid"]}"}}': {} for each in references_of({"metadata": part})
                    },
                    "f:annotations": {f"f:{name}": {} for name in part.get("annotations", {})},
                }
            },
        }
        for manager, part in managers
    ]
    return config_map(managedFields=entries, **meta)


MANAGERS = pytest.mark.parametrize("manager", [None, "ansible"], ids=["update", "apply"])
OTHER = Owner(ObjectRef(CR.ref.gvk, ObjectKey("shop", "two"), "uid-two"), namespaced=True)
SECOND = OTHER.reference()
ADOPTING = config_map(annotations={ADOPT: "true"})


def test_an_apply_repeats_the_references_that_its_field_manager_applied_and_no_others() -> None:
    third = {**FOREIGN, "uid": "uid-third", "name": "third"}
    current = applied(
        ("ansible", {"ownerReferences": [FOREIGN, REFERENCE]}),
        ("helm", {"ownerReferences": [third]}),
        ownerReferences=[FOREIGN, third, REFERENCE],
    )
    kept = own(config_map(), CR, CONFIG_MAP, "shop", current=current, manager="ansible")
    assert references_of(kept.obj) == [FOREIGN, REFERENCE]


@MANAGERS
def test_a_write_of_another_resource_keeps_the_creator(manager: str | None) -> None:
    current = applied(("ansible", {"ownerReferences": [REFERENCE]}), ownerReferences=[REFERENCE])
    kept = own(config_map(), OTHER, CONFIG_MAP, "shop", current=current, manager=manager)
    assert references_of(kept.obj) == [REFERENCE]
    assert kept.how is OwnerMark.NONE


@MANAGERS
@pytest.mark.parametrize("annotations", [{}, {ADOPT: "true"}, {INJECT_OWNER: "false"}])
def test_a_write_of_another_resource_keeps_the_annotations_of_the_creator(
    manager: str | None, annotations: dict[str, str]
) -> None:
    current = applied(("ansible", {"annotations": ANNOTATIONS}), annotations=ANNOTATIONS)
    definition = config_map(annotations=annotations)
    kept = own(definition, OTHER, CONFIG_MAP, "other", current=current, manager=manager)
    assert kept.obj == config_map(annotations={**annotations, **ANNOTATIONS})
    assert kept.how is OwnerMark.NONE


def test_an_apply_leaves_references_and_annotations_of_other_field_managers_to_them() -> None:
    theirs = {"ownerReferences": [FOREIGN], "annotations": ANNOTATIONS}
    definition = config_map()
    current = applied(("helm", theirs), **theirs)
    assert own(definition, OTHER, CONFIG_MAP, "shop", current=current, manager="ansible").obj is definition


@pytest.mark.parametrize(
    "odd",
    [
        None,
        "words",
        [None, "words", {"manager": "ansible", "operation": "Apply"}],
        [{"manager": "ansible", "operation": "Apply", "fieldsV1": {"f:metadata": []}}],
        [{"manager": "ansible", "operation": "Apply", "fieldsV1": {"f:metadata": {"f:ownerReferences": None}}}],
    ],
)
def test_managed_fields_of_another_shape_repeat_nothing(odd: Any) -> None:
    definition = config_map()
    current = config_map(managedFields=odd, ownerReferences=[FOREIGN])
    assert own(definition, CR, CONFIG_MAP, "shop", current=current, manager="ansible").obj is definition


@MANAGERS
def test_two_resources_that_adopt_an_object_never_evict_each_other(manager: str | None) -> None:
    stored = config_map()
    for owner in (CR, OTHER, CR, OTHER):
        sent = own(ADOPTING, owner, CONFIG_MAP, "shop", current=stored, manager=manager)
        assert sent.how is OwnerMark.REFERENCE
        part = sent.obj["metadata"]
        stored = applied((manager or "", part), ownerReferences=references_of(sent.obj))
    assert references_of(stored) == [REFERENCE, SECOND]


@pytest.mark.parametrize("named", [[], [FOREIGN]], ids=["no reference", "a reference of the role"])
def test_merge_patches_of_two_resources_that_adopt_an_object_never_evict_each_other(named: list[Object]) -> None:
    patch = {"metadata": {"annotations": {ADOPT: "true"}, **({"ownerReferences": named} if named else {})}}
    stored = config_map()
    for owner in (CR, OTHER, CR, OTHER):
        sent = adopt(patch, owner, CONFIG_MAP, "shop", stored)
        stored = {**stored, "metadata": {**stored["metadata"], **sent.obj["metadata"]}}
    assert references_of(stored) == [*named, REFERENCE, SECOND]


def test_a_merge_patch_that_names_owners_keeps_those_that_are_there() -> None:
    patch: Object = {"metadata": {"ownerReferences": [FOREIGN]}}
    current = config_map(ownerReferences=[REFERENCE, SECOND])
    assert references_of(adopt(patch, CR, CONFIG_MAP, "shop", current).obj) == [REFERENCE, SECOND, FOREIGN]
    releasing: Object = {"metadata": {**GIVEN_UP["metadata"], "ownerReferences": [FOREIGN]}}
    assert references_of(give_up(releasing, CR, current, strategic=False).obj) == [SECOND, FOREIGN]


@MANAGERS
def test_a_write_that_opts_out_removes_only_the_reference_of_its_resource(manager: str | None) -> None:
    references = [REFERENCE, SECOND]
    current = applied(("ansible", {"ownerReferences": references}), ownerReferences=references)
    definition = config_map(annotations={INJECT_OWNER: "false"})
    assert references_of(own(definition, CR, CONFIG_MAP, "shop", current=current, manager=manager).obj) == [SECOND]


@MANAGERS
def test_a_definition_can_adopt_an_object_without_owner(manager: str | None) -> None:
    adopted = own(ADOPTING, CR, CONFIG_MAP, "shop", current=config_map(), manager=manager)
    assert references_of(adopted.obj) == [REFERENCE]
    assert adopted.obj["metadata"]["annotations"] == {ADOPT: "true"}


def test_an_object_with_a_controller_is_not_adopted() -> None:
    definition = config_map(annotations={ADOPT: "true"})
    current = config_map(ownerReferences=[{**FOREIGN, "controller": True}])
    assert own(definition, CR, CONFIG_MAP, "shop", current=current, manager="ansible").obj is definition
    updated = own(definition, CR, CONFIG_MAP, "shop", current=current)
    assert updated.how is OwnerMark.NONE
    assert references_of(updated.obj) == references_of(current)
    assert adopt(definition, CR, CONFIG_MAP, "shop", current).obj is definition


def test_a_merge_patch_of_another_namespace_adopts_by_annotation() -> None:
    patch = {"metadata": {"annotations": {ADOPT: "true"}}}
    adopted = adopt(patch, CR, CONFIG_MAP, "other", config_map(annotations={"kept": "by merging"}))
    assert adopted.obj == {"metadata": {"annotations": {ADOPT: "true", **ANNOTATIONS}}}


GIVEN_UP: Object = {"metadata": {"annotations": {INJECT_OWNER: "false"}}}


@pytest.mark.parametrize(
    ("strategic", "sent"), [(False, [FOREIGN]), (True, [{"$patch": "delete", "uid": REFERENCE["uid"]}])]
)
def test_a_merge_patch_that_opts_out_removes_only_the_reference_of_the_proxy(
    *, strategic: bool, sent: list[Object]
) -> None:
    assert wants_release(GIVEN_UP)
    current = config_map(ownerReferences=[FOREIGN, REFERENCE])
    released = give_up(GIVEN_UP, CR, current, strategic=strategic)
    assert released.how is OwnerMark.NONE
    assert released.obj == {"metadata": {"annotations": {INJECT_OWNER: "false"}, "ownerReferences": sent}}


def test_a_merge_patch_that_opts_out_removes_the_annotations_of_the_owner() -> None:
    gone = give_up(GIVEN_UP, CR, config_map(annotations=ANNOTATIONS), strategic=False).obj
    assert gone == {"metadata": {"annotations": {INJECT_OWNER: "false", **dict.fromkeys(ANNOTATIONS)}}}


@pytest.mark.parametrize("current", [config_map(), config_map(ownerReferences=[FOREIGN])])
def test_a_merge_patch_that_opts_out_without_an_owner_is_sent_unchanged(current: Object) -> None:
    assert give_up(GIVEN_UP, CR, current, strategic=True).obj is GIVEN_UP


def test_a_merge_patch_with_owner_references_is_sent_unchanged() -> None:
    patch: Object = {"metadata": {**GIVEN_UP["metadata"], "ownerReferences": []}}
    assert give_up(patch, CR, config_map(ownerReferences=[REFERENCE]), strategic=False).obj is patch


def test_owners_are_read_from_references_and_annotations() -> None:
    obj = config_map(namespace="shop", ownerReferences=[FOREIGN], annotations=ANNOTATIONS)
    assert set(claims_of(obj)) == {
        OwnerClaim("example.com", "Other", "other", "shop", by_annotation=False, uid="uid-other"),
        OwnerClaim("cache.example.com", "Memcached", "mc", "shop", by_annotation=True),
    }


@pytest.mark.parametrize("type_", ["ConfigMap", "ConfigMap."])
def test_a_core_owner_is_found_in_either_spelling(type_: str) -> None:
    names = {"operator-sdk/primary-resource": "/c", "operator-sdk/primary-resource-type": type_}
    assert claims_of(config_map(annotations=names)) == (OwnerClaim("", "ConfigMap", "c", "", by_annotation=True),)


owners = st.sampled_from([CR, CLUSTER_CR, CORE_CR])
spaces = st.sampled_from(["shop", "other"])
metas = st.fixed_dictionaries(
    {},
    optional={
        "ownerReferences": st.lists(st.sampled_from([REFERENCE, FOREIGN, {**FOREIGN, "controller": True}]), max_size=2),
        "annotations": st.dictionaries(
            st.sampled_from([*ANNOTATIONS, ADOPT, INJECT_OWNER]), st.sampled_from(["true", "false", "shop/mc"])
        ),
    },
)


def _count(references: Iterable[Mapping[str, Any]], owner: Owner) -> int:
    return sum(reference.get("uid") == owner.ref.uid for reference in references)


@given(owner=owners, space=spaces, meta=metas, standing=st.none() | metas, manager=st.none() | st.just("ansible"))
def test_owners_that_were_added_are_read_back(
    owner: Owner, space: str, meta: dict[str, Any], standing: dict[str, Any] | None, manager: str | None
) -> None:
    current = None if standing is None else config_map(**standing)
    owned = own(config_map(**meta), owner, CONFIG_MAP, space, current=current, manager=manager)
    names = {(claim.kind, claim.name) for claim in claims_of({**owned.obj, "metadata": owned.obj["metadata"]})}
    assert (owned.how is not OwnerMark.NONE) <= ((owner.ref.gvk.kind, owner.ref.key.name) in names)
    before = [references_of(config_map(**given)) for given in (meta, standing or {})]
    assert _count(references_of(owned.obj), owner) <= max(1, *(_count(references, owner) for references in before))
