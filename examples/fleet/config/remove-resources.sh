#!/bin/sh
# Delete all resources of the kinds in config/crd, and wait until the operator has run their finalizers.
set -eu
kubectl="${KUBECTL:-kubectl}"
timeout="${TIMEOUT:-5m}"

crds="$($kubectl get --kustomize=config/crd --ignore-not-found --output=name)"
[ -n "$crds" ] || exit 0
kinds="$(printf '%s\n' "$crds" | sed 's|.*/||' | paste -s -d , -)"

remaining() {
    $kubectl get "$kinds" --all-namespaces --ignore-not-found --output=custom-columns="\
KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name,FINALIZERS:.metadata.finalizers"
}

$kubectl delete "$kinds" --all --all-namespaces --wait=false
waiting="$($kubectl get "$kinds" --all-namespaces --ignore-not-found --output=name)"
[ -n "$waiting" ] || exit 0
echo "Waiting up to $timeout for the operator to run their finalizers"
if ! $kubectl delete "$kinds" --all --all-namespaces --timeout="$timeout" >/dev/null; then
    {
        echo
        echo "These resources are being deleted, but nobody has run their finalizers within $timeout:"
        echo
        remaining
        echo
        echo "The operator does that. If none runs, start it (make deploy, or make run in another terminal); if one runs,"
        echo "its log and the resources' conditions say what fails. Then do this again. CRDs and operator were left alone."
        echo "To do without what a finalizer does:"
        echo "  $kubectl patch KIND NAME --namespace=NAMESPACE --type=merge --patch='{\"metadata\":{\"finalizers\":null}}'"
    } >&2
    exit 1
fi
