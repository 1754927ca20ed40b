# How config/ gets into the cluster of your kubeconfig, and out of it again.

KUBECTL ?= kubectl
ANSIBLE_OPERATOR ?= ansible-operator

# The namespaces that the operator looks after, with commas between; it has rights there alone. Empty: all namespaces.
WATCH_NAMESPACES ?=

# How long the removal of resources waits for their finalizers.
TIMEOUT ?= 5m

CONFINED = KUBECTL="$(KUBECTL)" $(ANSIBLE_OPERATOR) generate manifests --namespaces="$(WATCH_NAMESPACES)"
MANIFESTS = $(if $(WATCH_NAMESPACES),$(CONFINED),$(KUBECTL) kustomize config/default)
# With the image that is to run. Taken whole before it is passed on: where that fails, nothing is done.
DEPLOYMENT = manifests="$$($(MANIFESTS))" && printf '%s\n' "$$manifests" | sed 's|image: controller:latest|image: $(IMG)|'

.PHONY: install uninstall deploy undeploy build-installer

install: ## Install the CRDs into the cluster of your kubeconfig
	$(KUBECTL) apply -k config/crd

# Resources go first, while the operator still runs their finalizers; where nobody does, the CRDs stay.
uninstall: ## Remove all resources of the CRDs, waiting for their finalizers, and then the CRDs
	@KUBECTL="$(KUBECTL)" TIMEOUT="$(TIMEOUT)" sh config/remove-resources.sh
	$(KUBECTL) delete -k config/crd --ignore-not-found --timeout=$(TIMEOUT)

deploy: ## Deploy the operator with the image IMG, for all namespaces or WATCH_NAMESPACES
	$(DEPLOYMENT) | $(KUBECTL) apply -f -

undeploy: uninstall ## Remove the operator, after all its resources
	$(DEPLOYMENT) | $(KUBECTL) delete -f - --ignore-not-found --timeout=$(TIMEOUT)

build-installer: ## Write all manifests to dist/install.yaml
	@mkdir -p dist
	$(DEPLOYMENT) > dist/install.yaml
