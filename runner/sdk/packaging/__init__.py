"""Packages of a project: Helm chart, OLM bundle, manifests."""
