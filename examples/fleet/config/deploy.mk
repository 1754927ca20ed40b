# Build the image, install config/ in the cluster of your kubeconfig, and remove it.

KUBECTL ?= kubectl
ANSIBLE_OPERATOR ?= ansible-operator

# Docker if its engine runs, otherwise podman or buildah.
CONTAINER_TOOL ?= $(or $(shell for tool in docker podman buildah; do \
	$$tool version >/dev/null 2>&1 && echo $$tool && break; done),$(error No container tool works. Start the Docker \
	engine, or install podman or buildah (Debian: apt-get install buildah), or set CONTAINER_TOOL))
# In a chroot, buildah needs no container runtime. Its own image format has no SHELL and HEALTHCHECK.
export BUILDAH_ISOLATION ?= chroot
export BUILDAH_FORMAT ?= docker

# Comma-separated namespaces to watch; the operator has permissions only there. Empty: all namespaces.
WATCH_NAMESPACES ?=

# How long to wait for the finalizers of deleted resources.
TIMEOUT ?= 5m

CONFINED = KUBECTL="$(KUBECTL)" $(ANSIBLE_OPERATOR) generate manifests --namespaces="$(WATCH_NAMESPACES)"
MANIFESTS = $(if $(WATCH_NAMESPACES),$(CONFINED),$(KUBECTL) kustomize config/default)
# The manifests with the image IMG. Read completely before they are applied: if that fails, nothing is changed.
DEPLOYMENT = manifests="$$($(MANIFESTS))" && printf '%s\n' "$$manifests" | sed 's|image: controller:latest|image: $(IMG)|'

.PHONY: docker-build docker-push install uninstall deploy undeploy build-installer

# The node of a development cluster (`ansible-operator cluster up`) has no registry: it loads the image from here.
docker-build: ## Build the image IMG; the development cluster of your kubeconfig loads it
	$(CONTAINER_TOOL) build $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE) )--tag $(IMG) .
	@case "$$($(KUBECTL) config current-context 2>/dev/null)" in \
	ansible-operator-*) CONTAINER_TOOL=$(CONTAINER_TOOL) $(ANSIBLE_OPERATOR) cluster load $(IMG) ;; esac

docker-push: ## Push the image IMG
	$(CONTAINER_TOOL) push $(IMG)

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
