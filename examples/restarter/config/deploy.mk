# Install config/ in the cluster of your kubeconfig, and remove it.

KUBECTL ?= kubectl
ANSIBLE_OPERATOR ?= ansible-operator

# Comma-separated namespaces to watch; the operator has permissions only there. Empty: all namespaces.
WATCH_NAMESPACES ?=

# How long to wait for the finalizers of deleted resources.
TIMEOUT ?= 5m

CONFINED = KUBECTL="$(KUBECTL)" $(ANSIBLE_OPERATOR) generate manifests --namespaces="$(WATCH_NAMESPACES)"
MANIFESTS = $(if $(WATCH_NAMESPACES),$(CONFINED),$(KUBECTL) kustomize config/default)
# The manifests with the image IMG. Read completely before they are applied: if that fails, nothing is changed.
DEPLOYMENT = manifests="$$($(MANIFESTS))" && printf '%s\n' "$$manifests" | sed 's|image: controller:latest|image: $(IMG)|'

.PHONY: install uninstall deploy undeploy build-installer

install: ## Install the CRDs into the cluster of your kubeconfig
	$(KUBECTL) apply -k config/crd

# Delete resources first, while the operator still runs their finalizers. If it does not run, the CRDs remain.
uninstall: ## Remove all resources of the CRDs, wait for their finalizers, and remove the CRDs
	@KUBECTL="$(KUBECTL)" TIMEOUT="$(TIMEOUT)" sh config/remove-resources.sh
	$(KUBECTL) delete -k config/crd --ignore-not-found --timeout=$(TIMEOUT)

deploy: ## Deploy the operator with the image IMG, for all namespaces or WATCH_NAMESPACES
	$(DEPLOYMENT) | $(KUBECTL) apply -f -

undeploy: uninstall ## Remove all resources, the CRDs and the operator
	$(DEPLOYMENT) | $(KUBECTL) delete -f - --ignore-not-found --timeout=$(TIMEOUT)

build-installer: ## Write all manifests to dist/install.yaml
	@mkdir -p dist
	$(DEPLOYMENT) > dist/install.yaml
